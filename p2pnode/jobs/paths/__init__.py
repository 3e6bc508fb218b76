"""Paths (DiPaCo): a model of several levels, each with several options; every node trains one path through them.

Pure: grid.py (paths and their blocks), router.py (which documents belong to which path), assign.py (who trains which
path), mixing.py (several paths as one model). plan.py has what members agree on, prepare.py begins a job, job.py runs
it, reading.py reads a path or a mixture out, experts.py has what members add with data of their own.
"""
