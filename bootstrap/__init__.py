"""An always-on meeting point."""
