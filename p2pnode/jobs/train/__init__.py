"""TODO: what lives in train, and where to start reading."""
