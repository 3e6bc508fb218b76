"""Paths (DiPaCo): a model of several levels, each with several options; every node trains one path through them.

Pure: grid.py (paths and their blocks), router.py (which documents belong to which path), assign.py (who trains which
path), mixing.py (several paths as one model). plan.py has what members agree on, prepare.py begins a job (setup.py:
what it works with; routing.py: its data), job.py runs it: work.py is one path, holding.py the blocks at this node.
reading.py reads a path or a mixture out. experts.py has what members add with data of their own, expert_training.py
trains it.
"""
