"""Who holds a shard and who keeps its samples, as a pure state machine of one shard on one node.

`certificate` says who is responsible for a shard, signed by giver and receiver. `state` has what a node knows about a
shard and what may happen to it, `messages` what nodes tell each other, and `step` the rules: start reading there.
Nothing here does I/O or looks at a clock, so the node, the simulator and the model checker run the same code.
"""
