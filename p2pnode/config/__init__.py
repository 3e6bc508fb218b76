"""What a user can decide, as values. Nothing here reads files or asks other packages.

Start with `options.py` (the records), then `settings.py` (how people write each option), `resolve.py` (flags,
environment and TOML to one `Options`) and `units.py` (the one parser for times, rates, sizes and shares). Options that
are small languages have a file each: `split.py`, `until.py`, `schedule.py`. `readers.py` reads the others, `names.py`
makes names for nodes and runs that were given none.
"""
