"""The inspector: a separate connection to a server, its wire, and calls by hand."""
