"""Snapshots: a node takes over the weights of another member, confirmed by others and fetched from several at once.

Start with driver.py. outline.py is the format and its checks (pure), fetch.py asks members, offers.py serves others.
What a snapshot of a delta set contains is in ../deltaset/snapshots.py.
"""
