"""TODO: what lives in storage, and where to start reading."""
