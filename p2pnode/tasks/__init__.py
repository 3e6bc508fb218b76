"""Tasks: what a run learns.

task.py has the contract, the one class that a user subclasses; names.py lists the tasks that need no path, find.py
finds a task by the name that a user types or a manifest contains; optimizers.py has fast optimizers for it. digits.py,
fashion_mnist.py and text.py are the built-in tasks, corpus.py reads text files. errors.py says where a user's code
failed. Start with task.py.
"""
