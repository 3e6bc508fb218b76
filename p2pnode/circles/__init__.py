"""TODO: what lives in circles, and where to start reading."""
