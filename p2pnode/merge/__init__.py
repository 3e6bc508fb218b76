"""How peers share weights: one contract, one file per policy, one line in a dict."""
