"""What kinds of work have in common whose members share one model: exchanges, snapshots, circles, progress on disk.

Start with job.py, the base of such jobs. exchange.py talks to partners, checkpoints.py puts progress on disk,
policies.py finds the merge policy, authors.py the author that a user means, own_shards.py cuts own data. Where the
local steps come from is the kind's own business: `train` does them itself, `loop` watches a user's script doing them.
"""
