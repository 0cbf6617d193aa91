"""A server over HTTP: both eras on one endpoint, as a plain ASGI application."""
