"""A gateway's JSON API: one module for each kind of object, with its routes as a table.

Handlers contain no logic of their own: they call the same functions as the commands, and record
    changes.
"""
