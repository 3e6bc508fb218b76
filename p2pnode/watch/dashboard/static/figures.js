// Written by page/figures.py.
export const FIGURES = {
 "kind": [
  "kind",
  "",
  "What kind of work the job is; `train` learns one model together."
 ],
 "condition": [
  "state",
  "",
  "What a node, a peer or a job does at present."
 ],
 "job.reason": [
  "reason",
  "",
  "Why the job waits, is paused or ended."
 ],
 "task": [
  "task",
  "",
  "What is learned: model, data, loss and evaluation."
 ],
 "round": [
  "round",
  "rounds",
  "Rounds of local steps that a node has done since it joined the run."
 ],
 "steps": [
  "local steps",
  "steps",
  "Training steps on own samples since the node joined the run."
 ],
 "steps_per_second": [
  "speed",
  "steps/s",
  "Local steps a second while the node computes."
 ],
 "loss": [
  "training loss",
  "",
  "Mean loss over the local steps of the latest round, on the node's own samples, as the task defines it."
 ],
 "accuracy": [
  "test accuracy",
  "share",
  "Share of right answers of the node's read-out on the task's test data."
 ],
 "test_loss": [
  "test loss",
  "",
  "Mean loss of the node's read-out on the same test samples as the test accuracy."
 ],
 "test_samples": [
  "test samples",
  "samples",
  "Test samples that test accuracy and test loss are of: few at the first look, then as many as time allows."
 ],
 "test_available": [
  "all test samples",
  "samples",
  "Test samples that the task has."
 ],
 "update_norm": [
  "update norm",
  "share",
  "How much the shared weights change in a round, relative to their size; smoothed over ten rounds."
 ],
 "samples": [
  "samples trained on",
  "samples",
  "Samples that this node trains on at present; of a stream those it has read."
 ],
 "parameters": [
  "parameters",
  "numbers",
  "Numbers in the model that are learned."
 ],
 "head": [
  "own entries",
  "entries",
  "Number of the latest entry in the node's own log: what it has published."
 ],
 "entries": [
  "entries of others",
  "entries",
  "Entries of other nodes that came in since this start."
 ],
 "exchanges": [
  "exchanges",
  "exchanges",
  "Exchanges with partners that succeeded since this start."
 ],
 "bridges": [
  "bridges",
  "entries",
  "Own entries that carried what another circle learned into this one, since this start."
 ],
 "slowed": [
  "slowed down",
  "",
  "Why the node rests between rounds; empty while it trains at full speed."
 ],
 "merged": [
  "latest merge",
  "",
  "What the latest merge brought, in words."
 ],
 "problems": [
  "problems",
  "problems",
  "Things that went wrong in training since this start; each is an event."
 ],
 "hash_checks": [
  "hash checks",
  "checks",
  "How often partners with equal entries compared their weights bit by bit."
 ],
 "hash_mismatches": [
  "hash mismatches",
  "checks",
  "Hash checks in which the weights differed; there should be none."
 ],
 "vetoed": [
  "authors with vetoes",
  "authors",
  "Authors that some member wants excluded (`ban`)."
 ],
 "excluded": [
  "excluded authors",
  "authors",
  "Authors whose entries no longer count, because a moderator or most members signed a veto."
 ],
 "let_in": [
  "let in during rounds",
  "times",
  "How often entries of others were let in between the local steps of a round."
 ],
 "compute_share": [
  "share of compute",
  "share",
  "Share of this node's compute time that the job got lately."
 ],
 "compute_idle": [
  "compute idle",
  "share",
  "Share of the latest time in which the compute thread had nothing to do."
 ],
 "lineage_share": [
  "share of the weights",
  "share",
  "Share of all that was added to this node's weights by one author's entries, mean over layers."
 ],
 "circle": [
  "circle",
  "",
  "The nodes that share one delta set with this one; the run's first circle is called genesis."
 ],
 "community": [
  "community",
  "",
  "Nodes with similar models, as the node that looks measures it. Its name is that of the member with the smallest id, so nodes that compare the same peers use the same name."
 ],
 "progress": [
  "annealing",
  "share",
  "How far the run has gone from many communities to one."
 ],
 "merge.time": [
  "ended at",
  "s",
  "When the round ended, by this machine's clock, in seconds since 1970."
 ],
 "merge.sent_bytes": [
  "sent in round",
  "bytes",
  "Bytes sent in the exchanges since the merge before."
 ],
 "merge.received_bytes": [
  "received in round",
  "bytes",
  "Bytes received in the exchanges since the merge before."
 ],
 "merge.entries": [
  "entries in round",
  "entries",
  "Entries of others that came in since the merge before."
 ],
 "merge.steps": [
  "steps in round",
  "steps",
  "Local steps of the round; drawn from a Poisson distribution."
 ],
 "merge.values": [
  "weights sent (k)",
  "numbers",
  "Coordinates of the weights in the node's own entry of the round."
 ],
 "merge.update_norm": [
  "update norm of round",
  "share",
  "How much the shared weights changed in this round, relative to their size; not smoothed."
 ],
 "merge.partners": [
  "partners",
  "",
  "The peers this node exchanged with since the merge before."
 ],
 "nodes": [
  "other nodes",
  "nodes",
  "Other nodes of the run that answer; observers and meeting points are not counted."
 ],
 "observers": [
  "observers",
  "observers",
  "Peers of the run that only look; they train nothing."
 ],
 "role": [
  "role",
  "",
  "node, observer (only looks) or bootstrap (a meeting point)."
 ],
 "heard_seconds_ago": [
  "last heard",
  "s",
  "Time since the peer last answered a call of this node."
 ],
 "latency_ms": [
  "answer time",
  "ms",
  "Time until the peer answers a short call, smoothed."
 ],
 "bytes_per_second": [
  "bandwidth",
  "bytes/s",
  "Speed of large calls to the peer, as measured."
 ],
 "faults": [
  "faults",
  "faults",
  "Violations of the protocol by the peer; the count fades with time."
 ],
 "similarity": [
  "similarity",
  "",
  "Similarity of two models by their fingerprints, 0 to 1: about linear CKA of what they compute on the probe."
 ],
 "distance": [
  "distance to other models",
  "",
  "1 \u2212 similarity of this node's model to the models of others."
 ],
 "reason": [
  "last chosen because",
  "",
  "Why this node last chose the peer as a partner."
 ],
 "reached": [
  "reached",
  "",
  "Whether calls go to the peer directly or through a relay."
 ],
 "exchange.count": [
  "exchanges of the pair",
  "exchanges",
  "Exchanges that the two nodes had since the start of the one that tells."
 ],
 "exchange.sent_bytes": [
  "sent to the partner",
  "bytes",
  "Bytes that the first of the two sent in their exchanges."
 ],
 "exchange.received_bytes": [
  "received from the partner",
  "bytes",
  "Bytes that the first of the two received in their exchanges."
 ],
 "exchange.last": [
  "latest exchange",
  "s",
  "Time of the pair's latest exchange, in seconds since 1970."
 ],
 "exchange.loss_change": [
  "change of training loss",
  "",
  "Training loss of the round after the latest exchange minus that of the round before."
 ],
 "shards": [
  "shards",
  "shards",
  "Shards that may travel and are stored at the node."
 ],
 "shards_here": [
  "shards here",
  "shards",
  "Shards whose samples are at this node."
 ],
 "shards_in_all": [
  "shards in all",
  "shards",
  "Shards of the data set where every node has it whole; where nodes bring their own data, nobody knows."
 ],
 "shards_received": [
  "shards received",
  "shards",
  "Shards here that came from another node."
 ],
 "shard.samples": [
  "samples",
  "samples",
  "Samples in the shard."
 ],
 "shard.size_bytes": [
  "size",
  "bytes",
  "Size of the shard's samples."
 ],
 "holder": [
  "holder",
  "",
  "The one node that is responsible for the shard and may pass it on."
 ],
 "keepers": [
  "keepers",
  "",
  "Nodes that keep a copy on disk so that the shard survives its holder."
 ],
 "origin": [
  "origin",
  "",
  "Whether the shard is of this node's own data or came from another node."
 ],
 "shard.reason": [
  "reason",
  "",
  "Why the shard is in its state, or why it was last sent."
 ],
 "confidence": [
  "confidence",
  "",
  "Mean probability that this node's model gives to the right answers, 0 to 1."
 ],
 "mean_confidence": [
  "mean confidence",
  "",
  "Confidence of this node's model, mean over the shards shown."
 ],
 "visits": [
  "visits",
  "visits",
  "How often a model was trained on the shard, by its signed history."
 ],
 "visit.time": [
  "visited at",
  "s",
  "When the visit ended, in swarm time."
 ],
 "visit.before": [
  "confidence before",
  "",
  "Mean confidence of the model when it came to the shard."
 ],
 "visit.after": [
  "confidence after",
  "",
  "Mean confidence of the model when it left the shard."
 ],
 "active": [
  "active",
  "samples",
  "Samples that are trained on normally."
 ],
 "reserve": [
  "reserve",
  "samples",
  "Samples that several models know well and that --reserve draws less often."
 ],
 "retired": [
  "retired",
  "samples",
  "Samples that several models know very well and that --reserve draws least often."
 ],
 "quarantined": [
  "quarantined",
  "samples",
  "Samples that models with work of other peers fail at although they learned the rest: labels may be wrong. They get no weight in training here; --quarantine off trains on them too."
 ],
 "states": [
  "states of samples",
  "samples",
  "How many samples of the shard are trained on as active, reserve, retired and quarantined."
 ],
 "copied": [
  "shards copied",
  "shards",
  "Shards passed on and kept here too, since this start."
 ],
 "moved": [
  "shards moved",
  "shards",
  "Shards passed on because there was no room here, since this start."
 ],
 "data_sent_bytes": [
  "data sent",
  "bytes",
  "Bytes of shards passed on since this start."
 ],
 "data_received_bytes": [
  "data received",
  "bytes",
  "Bytes of shards that came to stay since this start."
 ],
 "swaps": [
  "model swaps",
  "swaps",
  "Model swaps that brought something home since this start."
 ],
 "swaps_hosted": [
  "models hosted",
  "swaps",
  "Models of others that were trained here since this start."
 ],
 "swap_bytes": [
  "model swap traffic",
  "bytes",
  "Bytes sent and received in model swaps since this start."
 ],
 "well": [
  "well",
  "",
  "1 while /health reports that the node is well."
 ],
 "paused": [
  "paused",
  "",
  "The reason why the node rests; as a metric 1 while it rests."
 ],
 "uptime_seconds": [
  "up",
  "s",
  "Time since this start of the node."
 ],
 "clock_offset_seconds": [
  "clock offset",
  "s",
  "Swarm time minus this machine's clock."
 ],
 "daemon_starts": [
  "daemon starts",
  "starts",
  "Starts of the libp2p daemon; more than one means that it was replaced."
 ],
 "traffic.sent_bytes": [
  "sent",
  "bytes",
  "Bytes this node sent in calls and streams since this start."
 ],
 "sent_total": [
  "sent in all",
  "bytes",
  "Bytes this node sent in this run, restarts included, as far as its kept history reaches."
 ],
 "traffic.received_bytes": [
  "received",
  "bytes",
  "Bytes this node received in calls and streams since this start."
 ],
 "calls_made": [
  "calls made",
  "calls",
  "Calls of this node to peers since this start."
 ],
 "calls_served": [
  "calls served",
  "calls",
  "Calls of peers that reached this node since this start."
 ],
 "refused": [
  "calls refused",
  "calls",
  "Calls of peers turned down since this start: malformed, too many, without the right, or not possible here; that a starting node is not ready yet does not count."
 ],
 "traffic_rate": [
  "traffic",
  "bytes/s",
  "Bytes sent and received a second."
 ],
 "max_upload": [
  "upload limit",
  "bytes/s",
  "Most bytes a second that the node sends."
 ],
 "max_download": [
  "download limit",
  "bytes/s",
  "Most bytes a second that the node receives."
 ],
 "max_cpu": [
  "processor limit",
  "share",
  "Largest share of all cores that the node uses."
 ],
 "machine.cpu": [
  "processor in use",
  "share",
  "Share of all cores in use by anybody."
 ],
 "own_cpu": [
  "this node's share",
  "share",
  "Share of all cores in use by this node, its daemon included."
 ],
 "memory_bytes": [
  "memory",
  "bytes",
  "Memory of the node's process."
 ],
 "memory_free_bytes": [
  "free memory",
  "bytes",
  "Memory of the machine that is free."
 ],
 "battery": [
  "battery",
  "share",
  "Charge of the machine's battery."
 ],
 "on_battery": [
  "on battery",
  "",
  "1 while the machine runs on its battery."
 ]
};
export const WORDS = {
 "node": "One p2pnode process with its own identity key and data directory.",
 "peer": "Another node, seen from this one.",
 "swarm": "All nodes that can find each other.",
 "meeting point": "An always-on node with a public address (python -m p2pnode bootstrap).",
 "observer": "A node that only looks: python -m p2pnode watch and p2pnode.Swarm.look start one.",
 "run": "One joint training effort: everybody in it works on the same list of jobs.",
 "manifest": "The signed description of a run by its founder: name, protocol number, whether it is private, and what is trained.",
 "invite": "The command a founder or member prints for a friend: addresses to join through and the run id.",
 "job": "One piece of work of a run, with a name and a kind; a manifest lists at most eight.",
 "task": "The Python class that says what is learned: model, data, loss, evaluation.",
 "reputation": "A node counts the protocol violations of each peer, and the count fades with time.",
 "swarm time": "The local clock plus an offset that peers agree on by median.",
 "round": "Some local training steps followed by one published result.",
 "partner": "A peer chosen for an exchange, up to three per round.",
 "exchange": "One or two calls in which two nodes compare what they know and send each other what is missing.",
 "merge policy": "The rule that turns the results of several nodes into shared weights.",
 "read-out": "A running mean of the weights.",
 "genesis": "The first weights of a run, made from the seed in the manifest.",
 "delta": "A sparse change of the weights: which coordinates, and by how much on a fixed integer grid.",
 "entry": "A delta published by one author: signed, numbered, and chained to the author's previous entry by hash.",
 "log": "All entries of one author, in order; also called its chain.",
 "heads": "For each log the number of the latest entry a node knows.",
 "residual": "The progress of a node that it has not sent yet, called e in the code.",
 "selector": "The rule that decides which coordinates of the residual go into the next delta.",
 "fork": "Two different entries with the same number in one log: proof that its author cheated.",
 "citation": "What an entry says about the others in runs with --set bounds=1: the latest entry of each other author that its author knew.",
 "admission": "In runs with --set admission=1 an author counts once another author has admitted it in an entry; the founder needs none.",
 "veto": "A signed statement that an author's entries should not count.",
 "lineage": "The identity of one delta set: the hash of the genesis and the circle's name.",
 "snapshot": "The weights of a delta set at a certain place (heads), in hash-checked chunks.",
 "outer step": "The factor \u03b3/G by which a delta is scaled before it is published, where G is the number of members.",
 "probe": "About 128 fixed inputs that belong to the run.",
 "fingerprint": "260 bytes that describe what a model computes on the probe.",
 "neighbours": "The peers whose models are most similar to ours, found by gossip, and some random ones.",
 "community": "A group of nodes with similar models, cut from a tree (dendrogram) of similarities.",
 "circle": "The nodes that share one delta set: usually 4 to 16.",
 "aim": "What the founder wants: shared (one good model for all; circles mix communities) or own (each community good at its own kind of data; circles stay inside communities).",
 "bridge": "An exchange between two circles.",
 "shard": "A piece of a data set, about a hundred samples in digits, named by the hash of its content.",
 "holder": "The one node responsible for a shard; it may pass the shard on.",
 "keeper": "A node that keeps a copy of a shard on disk so that the shard survives its holder.",
 "handoff": "The protocol by which a shard gets a new holder without ever being lost.",
 "visit": "A model's stay at a shard, written into the shard's signed history: which model, when, and how confident it was before and after.",
 "model swap": "The alternative for data that must stay at home: two nodes send each other copies of their models, train them for about a round on their own samples, and return the largest changes.",
 "confidence": "The probability a model gives to the correct answer for a sample, exp(\u2212loss) unless the task says otherwise.",
 "loop": "A job whose local steps come from a training loop of the user's own (p2pnode.join).",
 "queue": "One of several models that a job of the kind queues trains ([queues.md](queues.md)).",
 "lease": "The signed right of one node at a time to own a piece of work, such as a queue.",
 "path": "A chain of blocks that one node trains, one of several through a model ([paths.md](paths.md)).",
 "expert": "The levels of a path that a member has trained on data of its own and offers to the others."
};
