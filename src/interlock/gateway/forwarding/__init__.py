"""A server whose catalogue is a toolbox: requests of clients become calls of servers."""
