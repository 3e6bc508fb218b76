"""What a user can decide, as values. Nothing here reads files or asks other packages.

Start with `options.py` (the records), then `settings.py` (how people write each option), `resolve.py` (flags,
environment and TOML to one `Options`) and `units.py` (the one parser for times, rates, sizes and shares).
"""
