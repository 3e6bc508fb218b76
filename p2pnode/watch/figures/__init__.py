"""Figures of a swarm with matplotlib, as `view.plot()` and its sisters show them.

`graph` draws the peer graph and curves over time (`groups`: of a large swarm), `trees` the similarity matrix and the
dendrogram, `queues` who owned which queue, `laptops` the returns of policies. `drawing` has what they share.
"""
