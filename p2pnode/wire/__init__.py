"""The bottom layer, all pure: ids and signatures, signed records, addresses, messages, the run's manifest, errors.

Everything that travels between nodes or is stored as bytes is defined here, with a bound on every field. Start with
messages.py (what nodes ask each other), status.py (what a node shows of itself and its peers), run.py (the manifest of
a run) and errors.py (every error and whose fault it is).
"""
