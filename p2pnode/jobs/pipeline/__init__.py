"""Pipelines (SWARM): a model larger than one machine. Servers hold spans of consecutive blocks; drivers send
micro-batches of their data through them.

Pure: spans.py (who holds which blocks), routing.py (which server gets a call), tickets.py (each gradient counts once),
tensors.py (activations in 8 or 4 bits), placement.py (what to expect of machines and links). measuring.py finds that
out here. local_blocks.py has the blocks of one machine in memory, shared_parts.py shares them with other holders,
server.py answers calls, driver.py trains with them, job.py runs both.
"""
