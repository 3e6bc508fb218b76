"""The job kind `train`: rounds of local steps on one model, exchanged with partners and merged by a policy.

Start with job.py, which reads like a round: train, describe, publish, merge, evaluate, save (what it shares with other
kinds is in ../model). plan.py is what all members of the run agree on, prepare.py turns it into a job,
shard_training.py connects training with data that travels, model_swap.py sends models to data that stays at home.
"""
