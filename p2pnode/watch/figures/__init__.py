"""TODO: what lives in figures, and where to start reading."""
