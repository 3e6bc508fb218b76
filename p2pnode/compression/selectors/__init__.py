"""The rules that decide which coordinates of a residual are sent. The contract is compression/selector.py.

Start with magnitude.py, the default, and registry.py, which says how a run chooses another one. scored.py multiplies
magnitudes by influence.py (gradients and curvature) and importance.py (learned), and granularity.py chooses between
single coordinates and blocks; all of these are off unless a run sets them.
"""
