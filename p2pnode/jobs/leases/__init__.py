"""Leases: one member at a time owns a piece of work, and the work moves on when its owner is gone.

Start with lease.py (what is signed and which lease wins); watch.py decides when a node may work and when it takes over.
keeper.py carries that out: it asks, renews, hands over and saves.
"""
