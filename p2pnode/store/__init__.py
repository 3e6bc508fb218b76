"""What a node keeps on disk: identity, run, peer book. Atomic writes, one lock, nothing half-written."""
