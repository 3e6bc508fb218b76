"""TODO: what lives in notebook, and where to start reading."""
