"""A swarm inside a notebook: `html` is the static summary of a view, `widget` the interactive peer graph."""
