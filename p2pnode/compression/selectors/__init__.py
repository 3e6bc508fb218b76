"""TODO: what lives in selectors, and where to start reading."""
