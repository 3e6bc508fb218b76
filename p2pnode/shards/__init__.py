"""Data that travels: shards, who holds and keeps them, which models visited them, and where they go next.

A shard is about a hundred samples, named by the hash of their content (`shard`, `samples`). At any time one node is its
*holder*, who may give it away, and a few *keepers* have its samples on disk. A *visit* is a model training on a shard;
the signed history of visits travels with it (`visits`).

Start reading at `driver`: it alone does something. What it carries out is decided in files without I/O:
- `handoff/`: the state machine of one shard, which loses nothing whatever message or node fails.
- `maintenance`: keepers, takeovers, and whether an offered shard is accepted.
- `protocol`: messages between nodes, and what a peer does not know yet.
- `route`: which shard goes to which peer; `shipping` asks peers for their needs and lets the driver give it.
- `sample_states`, `confidence`: what models know of each sample; whether it is active, reserve, retired or quarantined.
- `split`: how data that all nodes have is divided among them; `rows`: which rows of it a node trains on.
`store` has states and files, `transfer` moves samples between nodes.

Where may a shard be deleted? `ShardDriver._drop` is the only place, and it needs two things. The state machine must not
require this node to keep the samples: `handoff.step._on_release` is the only rule that ends keeping, by a release that
the holder signed. And the holder or a keeper must prove that it has them.
"""
