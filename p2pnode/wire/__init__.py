"""TODO: what lives in wire, and where to start reading."""
