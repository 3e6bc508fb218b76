"""Merge policies: how the work of many nodes becomes one model.

Start with policy.py, the contract with one round as an example, and capabilities.py, what a policy may do beyond it.
The default policy is the delta set (deltaset/); average.py, gossip.py and diloco.py are baselines. A new policy is one
file that subclasses `Policy` and one line in registry.py. snapshots/ takes newcomers to where a member is. readout.py
is the running mean that is evaluated and exported; schedule.py and settling.py let the learning rate fall; values.py
encodes what plain policies send, messages.py what exchanges consist of.
"""
