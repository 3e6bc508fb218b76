"""What is sent of a node's progress, and how it becomes bytes.

Weights are one float32 vector, and what nodes exchange are integers on a fixed grid (weights.py). A round's progress
goes into a residual (residual.py); a selector chooses coordinates of it (selector.py is the contract, selectors/ has
the rules); their values become few levels (quantise.py); the result is a sparse delta (delta.py), and codec.py writes
and reads it: indices.py and values.py are its two halves, bits.py and sections.py pack them. signs.py is the other wire
format: the sign of every coordinate. Everything here is pure.

Start with residual.py and selector.py for what is sent, with codec.py for the wire format.
"""
