"""The real network: libp2p, through the p2pd daemon that hivemind ships and its asyncio bindings.

Start reading at `hivemind`, which puts the parts together. `supervised` replaces a daemon that died or hangs, and fails
what was under way; `link` is one daemon with everything that depends on it; `daemon` is the process itself.
- `frames`, `pieces`, `incoming`: streams in our own format, read without needless copies, and limits for incoming work.
- `routing`: who is nearest to a key, by hivemind's Kademlia, restricted to what we need.
- `ports`, `relays`, `orphans`: free ports, relays for nodes behind NAT, and daemons left by a node that was killed.
"""
