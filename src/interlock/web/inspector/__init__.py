"""The inspector: a server with a connection of its own, its wire, and calls by hand."""
