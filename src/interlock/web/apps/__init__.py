"""MCP Apps: pages of servers in a frame of our page, and the calls that they make."""
