"""TODO: what lives in handoff, and where to start reading."""
