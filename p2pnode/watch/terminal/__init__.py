"""TODO: what lives in terminal, and where to start reading."""
