"""Several models at once: each has its own queue of deltas, which one member at a time owns and applies.

Start with job.py; its loops are in producing.py, owning.py and syncing.py, and what they share is in state.py. Pure:
items.py (what waits in a queue), log.py (what was applied, the same at every node), priority.py (which queue is next),
allocation.py (who should own which queue), changes.py (what the founder changes). Leases are in jobs/leases.
"""
