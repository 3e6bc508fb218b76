"""For all tests: torch trains with one thread. Two on a busy machine of two cores are up to 50 times slower."""

import os

import hypothesis

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples are judged by what they do, never by how long they take on a busy machine.
hypothesis.settings.register_profile("p2pnode", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("p2pnode")
