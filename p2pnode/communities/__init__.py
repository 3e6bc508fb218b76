"""Whom to learn with: fingerprints, communities, circles, partners, and how similar peers are found. Pure."""
