"""TODO: what lives in jobs, and where to start reading."""
