"""TODO: what lives in training, and where to start reading."""
