"""For all tests: torch trains with one thread. Two on a busy machine of two cores are up to 50 times slower."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
