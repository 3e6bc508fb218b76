"""The loop job: members share a model that each trains in a training loop of its own (`p2pnode.join`).

Start with handover.py, by which weights go between the thread that trains and the node. weights.py is the user's model
as one vector, source.py what loop and node know of each other, job.py the rounds, genesis.py how newcomers get the
run's first weights. replica.py is a copy of the model to try weights out on, judge.py judges those of other circles
with it, pretrained.py exports. shards.py and shared_data.py let the loop's data travel.
"""
