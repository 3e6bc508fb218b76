"""The rules that choose which coordinates are sent. compression/selector.py is their contract.

registry.py lists them and picks the one that a run's settings name. magnitude.py is the default. scored.py multiplies
factors: influence.py (gradient and curvature), importance.py (small networks), layer_scores.py (what partners report);
granularity.py chooses blocks instead of single coordinates. A new rule is one class with `select`, and one line in
registry.py.
"""
