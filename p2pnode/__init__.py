"""p2pnode: people train models together without a server."""

__version__ = "0.1.0"
