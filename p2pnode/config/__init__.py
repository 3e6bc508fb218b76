"""TODO: what lives in config, and where to start reading."""
