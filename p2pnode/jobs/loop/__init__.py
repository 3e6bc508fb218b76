"""The loop job: members share a model that each trains in a training loop of its own (`p2pnode.join`).

Start with handover.py, by which weights go between the thread that trains and the node. weights.py is the user's model
as one vector, plan.py what members agree on, job.py the rounds, genesis.py how newcomers get the run's first weights.
"""
