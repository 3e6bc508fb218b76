"""What is learned: the Task contract, the built-in tasks, and how a task is found by its name or file.

Start with task.py (the class a user subclasses) and find.py (from what was written after --task to a Task; code named
by a peer is never imported). digits.py, fashion_mnist.py and text.py are the built-in tasks.
"""
