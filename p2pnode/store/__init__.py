"""What a node keeps on disk: identity, run, peer book, progress, shards. One lock, nothing half-written."""
