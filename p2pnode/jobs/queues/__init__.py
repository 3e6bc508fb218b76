"""Several models at once: each has its own queue of deltas, which one member at a time owns and applies.

Start with job.py; its loops are in producing.py, owning.py and syncing.py, and what they share is in state.py. Pure:
items.py (what waits in a queue), log.py (what was applied, the same at every node), priority.py (which queue is next),
allocation.py (who should own which queue), changes.py (what the founder changes), announcing.py (what a node
announces). saving.py puts queues on disk, waiting.py is how the loops wait, api.py is `p2pnode.Queues`. Leases are in
jobs/leases.
"""
