"""Training itself: bench, steps, evaluation, fingerprints. Needs torch."""
