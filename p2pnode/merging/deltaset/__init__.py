"""TODO: what lives in deltaset, and where to start reading."""
