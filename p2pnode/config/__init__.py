"""What a user can decide, as values: no package below or beside is asked, nothing is read from disk.

Start with `options.py` (the records), then `settings.py` (how people write each option), `resolve.py` (flags,
environment and TOML to one `Options`) and `units.py` (the one parser for times, rates, sizes and shares).
"""
