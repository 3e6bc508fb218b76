"""Local training at one node: from weights to weights on its own samples, off the event loop.

Start with trainer.py (local steps) and host.py (the one model that all trainers of a process share). pool.py holds the
samples to draw from, batches.py their order, stepper.py the optimizer, rounds.py the number of steps of a round.
evaluation.py and progress.py say how good the model has become; fingerprinter.py describes it for others.
"""
