"""`python -m bootstrap` in a checkout; README.md says how to keep one running, p2pnode/cli/meeting_point.py runs it."""
