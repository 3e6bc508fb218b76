"""What a node keeps on disk.

files.py is the seam: named byte strings, on disk or in memory. datadir.py opens and locks a node's data directory and
has its identity. checkpoints.py saves a model's state and the journal of what was published after it. Start with
`Storage` in files.py.
"""
