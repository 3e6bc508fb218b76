"""Who is there: announcements, the directory in the DHT, membership, and what is known about peers.

Start with membership.py (the loops that keep a node in touch with its swarm) and table.py (the known peers).
announcing.py signs what a node says about itself, directory.py publishes and reads it, registry.py keeps table and peer
book up to date, reputation.py counts faults, swarm_time.py agrees on the time, link_rate.py measures links. records.py
stores and finds signed records in the DHT, directory_tree.py says under which key. lan.py and mdns.py find runs in the
local network. services.py is the record of dependencies that every component above this package is handed.
"""
