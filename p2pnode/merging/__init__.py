"""TODO: what lives in merging, and where to start reading."""
