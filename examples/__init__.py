"""One file per idea."""
