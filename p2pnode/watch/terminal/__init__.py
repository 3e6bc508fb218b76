"""A node in a terminal: `live` is the full-screen view, `tables` the table of peers, `lines` one line per event."""
