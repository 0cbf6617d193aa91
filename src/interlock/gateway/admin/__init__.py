"""The JSON API of a gateway: one module for each noun, with its routes as a table.

No handler decides or computes anything. It calls what the commands call, and records changes.
"""
