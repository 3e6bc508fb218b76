# Two commands do everything on a fresh machine with Python 3.11, make and the package registries:
#   make demo   a local swarm of four nodes, four processes, each with its own libp2p daemon
#   make test   the tests; the longest simulations are `make slow`
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# Installed once; a change of the project's requirements installs again.
STAMP := $(VENV)/.installed

.PHONY: demo test slow browser page fast lint types setup clean

demo: $(STAMP)
	$(PY) -m examples.demo

test: $(STAMP) browser
	$(PY) -m pytest -n 2 --dist loadgroup -m "not slow"

slow: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m slow

# The page is tested in a real browser.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| (apt-get update -q && apt-get install -q -y chromium) >/dev/null 2>&1 \
	|| echo "no Chromium here, and it cannot be installed: the tests of the page are skipped"

# What every node serves: page/src bundled into p2pnode/watch/dashboard/static, which is committed.
page:
	cd page && npm ci && npm run build

fast: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m "not live and not slow"

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || $$(command -v $(PYTHON) || command -v python3) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
