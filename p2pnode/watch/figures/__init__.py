"""Figures of a swarm with matplotlib, as `view.plot()` and its sisters show them.

`graph` draws the peer graph and curves over time, `trees` the similarity matrix and the dendrogram. `drawing` has what
they share.
"""
