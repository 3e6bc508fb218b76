"""The delta set: a circle's weights as a set of signed sparse deltas (docs/design.md). Pure: values in, values out."""
