"""Who is there: announcements, the directory in the DHT, membership, and what is known about peers.

Start with membership.py (the loops that keep a node in touch with its swarm) and table.py (the known peers).
announcing.py signs what a node says about itself, directory.py publishes and reads it, registry.py keeps table and
peer book up to date, reputation.py counts faults. services.py is the record of dependencies that every component above
this package is handed.
"""
