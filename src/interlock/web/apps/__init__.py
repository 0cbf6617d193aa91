"""MCP Apps: pages of servers in a box on our page, and the calls that they make."""
