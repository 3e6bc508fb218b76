"""Learning as a whole: what a node does from round to round, and what others may ask of it."""
