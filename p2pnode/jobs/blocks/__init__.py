"""Blocks: named parts of a model, each shared by those who hold it and with a lineage of its own.

layout.py cuts a model's vector into parts. shared.py keeps one block equal among its holders. joined.py makes one
vector of the blocks that a node trains together.
"""
