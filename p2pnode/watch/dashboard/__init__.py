"""The page a node serves: its picture of the swarm, live. Reads; steering needs the token printed at the start."""
