"""The way to other peers: one seam (base), two networks behind it (hivemind, sim), records and streams on top."""
