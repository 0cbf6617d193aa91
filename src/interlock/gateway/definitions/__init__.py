"""Definitions that servers offer: pinned, exported to a lock file, accepted and rejected."""
