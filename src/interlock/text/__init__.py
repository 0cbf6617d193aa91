"""Texts for people and logs: quoted values, redacted secrets, URLs, and points in time."""
