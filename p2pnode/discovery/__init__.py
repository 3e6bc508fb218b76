"""TODO: what lives in discovery, and where to start reading."""
