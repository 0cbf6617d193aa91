"""The commands of servers: configured, logged in to, listed, called and served."""
