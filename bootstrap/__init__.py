"""An always-on meeting point: `python -m bootstrap`. Start reading with `__main__.py`."""
