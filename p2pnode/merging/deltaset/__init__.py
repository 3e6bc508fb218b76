"""The delta set: a circle's weights are the sum of signed sparse deltas, equal wherever the same entries are known.

Start with policy.py, which ties everything together. An entry is made by author.py (how large and how bold:
steering.py and pace.py), checked by entry.py, put into its author's chain by log.py (state: chains.py; whether it
counts: judging.py, with the rules of citations.py, bounds.py, admission.py and vetoes.py) and added up in set.py. Two
nodes compare heads.py and exchange.py brings what is missing. agreement.py and checksum.py find damaged weights,
snapshots.py replaces them. bridges.py compares circles, attribution.py tells whose work is in the weights,
correction.py lets entries in between local steps, retention.py says from which weights a round starts. own_log.py
decides after a restart whether this node's log may go on. state.py is the set on disk; options.py is what a run may
set. All files are pure.
"""
