"""The commands of servers: configure, log in, list, call and serve."""
