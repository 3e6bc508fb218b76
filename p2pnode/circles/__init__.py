"""Circles: groups of about eight members that share one delta set.

Start with advice.py, the rules that decide who should be in which circle (pure), then driver.py, which carries them
out. members.py is the state that all parts share: this node's circle and who else is there. founding.py is the signed
record of a split, splits.py watches for splits that others make, transitions.py computes the set to go on with,
trust.py checks a circle's claims against this node's own samples, bridging.py compares weights with other circles.
"""
