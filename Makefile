# Two commands do everything on a fresh machine with Python 3.11, make and the package registries:
#   make demo     a local swarm of four nodes, four processes, each with its own libp2p daemon
#   make test     the tests; the longest simulations are `make slow`
# Also: make fast (no daemons), lint, types, bench (all benchmarks into docs/benchmarks.md; QUICK=1 for short ones),
# storm (simulated faults for hours), stress (the tests beside busy processes, under nohup, in random order, in four
# processes), page, figures, clean
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# Installed once; a change of the project's requirements installs again.
STAMP := $(VENV)/.installed

.PHONY: demo test slow fast lint types bench storm stress page screenshots figures system setup clean

demo: $(STAMP)
	$(PY) -m examples.demo

test: $(STAMP) system
	$(PY) -m pytest -n 3 --dist loadgroup -m "not slow"

slow: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m slow

# Interrupted or failed, it goes on where it stopped: build/bench keeps what has ended.
bench: $(STAMP) system
	$(PY) -m benchmarks $(if $(QUICK),--quick)

# Simulated swarms in all kinds of faults for 1,000 swarm-hours, or HOURS=20; prints the seeds of what fails.
storm: $(STAMP)
	$(PY) -m benchmarks.storm $(if $(HOURS),--hours $(HOURS))

stress: $(STAMP) system
	PYTHON=$(PY) .ci/stress

# Chromium, iptables, iproute2 and Fashion-MNIST, where packages may be installed.
system:
	@.ci/packages

# What every node serves: page/src bundled into p2pnode/watch/dashboard/static, which is committed.
page:
	cd page && npm ci && npm run build

# Every tab of the page, of real nodes and of recorded simulations, in four modes: to be looked at after a change.
screenshots: $(STAMP) system
	$(PY) -m page.screenshots

# The table of figures for the page and for docs/figures.md, after changing p2pnode/watch/glossary.py or concepts.md.
figures: $(STAMP)
	$(PY) -m page.figures

fast: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m "not live and not slow"

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt Makefile
	test -x $(PY) || $$(command -v $(PYTHON) || command -v python3) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,integrations]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
