"""The commands for servers: configure, log in, list and call tools, and run a Python server."""
