"""TODO: what lives in libp2p, and where to start reading."""
