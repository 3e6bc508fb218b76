"""What a node keeps on disk.

files.py is the seam: named byte strings, on disk or in memory. checked.py notices damage and says what is done about
it. datadir.py opens and locks a node's data directory and has its identity. checkpoints.py saves a model's state and
the journal of what was published after it. state_file.py is the format of exported models. Start with `Storage` in
files.py.
"""
