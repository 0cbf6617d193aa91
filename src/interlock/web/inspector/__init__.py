"""The inspector: a separate connection to a server that shows all messages, and manual calls."""
