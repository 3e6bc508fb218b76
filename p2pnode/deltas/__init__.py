"""Deltas: choose what to send, quantise it, put it into bytes. Pure: arrays in, arrays or bytes out."""
