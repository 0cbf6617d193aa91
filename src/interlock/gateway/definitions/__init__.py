"""Servers' definitions: operators accept or reject them, and export them to a lock file."""
