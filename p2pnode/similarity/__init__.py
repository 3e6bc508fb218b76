"""Which models are alike, and which partners to exchange with.

Start with fingerprint.py: what a model has learned, in 260 bytes that are compared by a dot product. neighbours.py
finds similar peers by gossip, communities.py groups them in a tree, annealing.py says how communities and bridges
change over a run, sketch.py describes vectors in few numbers, partners.py chooses the partners of a round, with
reasons. driver.py does all this for one model.
"""
