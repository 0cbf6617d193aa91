"""Backups, moves and new keys of whole databases."""
