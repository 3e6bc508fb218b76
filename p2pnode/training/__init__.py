"""Local training: from weights to weights on this node's own samples.

host.py has the model and its data on a device; trainer.py does local steps on it and evaluates; pool.py and batches.py
decide which samples come next; stepper.py holds the optimizer. evaluation.py says when to evaluate and save, rounds.py
how long a round is, threads.py how many threads torch gets. fingerprinter.py describes a model for comparison,
newcomer_probe.py does so before a node has joined a circle. background.py is work next to the steps, progress.py what
training has reached, read_ahead.py the thread that reads slow rows. slowdown.py lets a converged node rest.
function_sketch.py compares what two models compute, input_statistics.py estimates what BatchNorm keeps. Start with
trainer.py.
"""
