"""From a residual to a few bytes, and back: which coordinates are sent, with which values, in which code. All pure.

Start with residual.py (what leaves a residual) and selector.py (the contract of the rule that chooses coordinates; the
rules are in selectors/). quantise.py finds few levels for many values, codec.py writes and reads deltas, weights.py is
the grid of integers on which nodes add.
"""
