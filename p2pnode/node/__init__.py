"""The node: owns its parts, keeps contact with the swarm, answers calls."""
