"""TODO: what lives in runtime, and where to start reading."""
