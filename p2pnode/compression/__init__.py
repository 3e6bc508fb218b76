"""TODO: what lives in compression, and where to start reading."""
