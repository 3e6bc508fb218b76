"""What every component of a node is handed, so that nothing reaches outside by itself.

Start reading with `seams.py`, which bundles clock, randomness, storage and compute, so that a simulation can replace
them. `calls.py` sends requests to peers; `throttle.py` keeps to the bandwidth limits; `limiter.py` (the driver) and
`limits.py` (its pure rules) decide when the node rests and how hard it works; `machine.py` measures the machine's load;
`events.py` lists everything a node reports; `routes.py` is a table of handlers for requests.
"""
