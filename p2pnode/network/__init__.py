"""The connection to other peers: one seam (`base`) and two networks behind it.

`base` says what a node may ask of a network; start reading there. `libp2p/` is the real one, over hivemind's p2pd
daemon, `sim/` one in memory on virtual time. tests/network/test_conformance.py checks what both must guarantee.
"""
