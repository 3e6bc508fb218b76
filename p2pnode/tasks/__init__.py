"""Tasks: what a run learns.

task.py has the contract, the one class that a user subclasses; names.py lists the tasks that need no path, find.py
finds a task by the name that a user types or a manifest contains; optimizers.py has fast optimizers for it. digits.py,
fashion_mnist.py and gpt.py are the built-in tasks. Of gpt, decoder.py is the model, corpus.py reads texts and files of
tokens, tokenizer.py cuts texts into tokens, and generation.py continues them. tokens.py has files of tokens for tasks
of users, data.py any samples in memory or read by index, stream.py those that come one after the other. blocks.py and
features.py are what paths and pipelines need of a task: a model in parts, and what a router sees of texts. errors.py
says where a user's code failed. Start with task.py.
"""
