"""The JSON API of a gateway: one module for each noun, with its routes as a table.

Handlers decide and compute nothing. They make the same calls as the commands, and record changes.
"""
