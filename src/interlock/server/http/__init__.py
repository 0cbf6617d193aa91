"""A server over HTTP: an ASGI application that serves modern and legacy clients on one path."""
