"""Benchmarks: figures next to baselines of the same run.

`python -m benchmarks.NAME [--quick] [--json]` runs one of them, `python -m benchmarks` (`make bench`) all that have not
run yet. catalogue.py lists them.
"""
