"""Looking at a node: terminal view, plain and JSON lines. Reads, never steers."""
