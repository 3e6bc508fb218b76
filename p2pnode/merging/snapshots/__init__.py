"""TODO: what lives in snapshots, and where to start reading."""
