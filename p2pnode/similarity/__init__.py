"""TODO: what lives in similarity, and where to start reading."""
