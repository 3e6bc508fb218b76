"""Figures, each beside its baseline in the same run. `python -m benchmarks.NAME [--quick] [--json]`."""
