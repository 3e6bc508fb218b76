"""Data as shards: how a data set is cut, who trains on what, in what order."""
