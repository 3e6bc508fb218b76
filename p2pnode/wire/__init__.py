"""The bottom layer, all pure: ids and signatures, signed records, addresses, messages, the run's manifest, errors.

Everything that travels between nodes or is stored as bytes is defined here, with a bound on every field. Start with
messages.py (what nodes ask each other, in an envelope.py), types.py (fields with bounds), status.py (what a node shows
of itself and its peers), run.py (the manifest of a run), invite.py (the code that friends paste), control.py (what
commands ask of the running node) and errors.py (every error and whose fault it is). bounded.py has dictionaries that
forget their oldest key.
"""
