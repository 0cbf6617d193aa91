"""The commands for servers: configure them, log in to them, use them, and serve one's own."""
