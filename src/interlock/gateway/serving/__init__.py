"""Serves a gateway on its listeners, or on stdin and stdout, until a signal ends it."""
