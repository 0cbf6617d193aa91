"""The layers that a call passes on its way to a server."""
