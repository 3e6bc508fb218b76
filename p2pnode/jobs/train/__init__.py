"""The job kind `train`: rounds of local steps on one model, exchanged with partners and merged by a policy.

Start with job.py, which reads like a round: train, describe, draft, publish, exchange, merge, evaluate, save. plan.py
is what all members of the run agree on, prepare.py turns it into a job, exchange.py talks to partners, checkpoints.py
puts progress on disk, shard_training.py connects training with data that travels, model_swap.py sends models to data
that stays at home.
"""
