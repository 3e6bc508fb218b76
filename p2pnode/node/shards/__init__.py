"""Shards held, kept, handed over and passed on."""
