"""Looking at a node and its swarm: terminal view, lines, notebooks, page. Reads; only the node's orders steer."""
