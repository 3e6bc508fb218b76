"""Benchmarks: figures next to baselines of the same run.

`python -m benchmarks.NAME [--quick] [--json]` runs one of them, `python -m benchmarks` (`make bench`) all that have not
run yet. catalogue.py lists them.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would compete with other processes of a benchmark
