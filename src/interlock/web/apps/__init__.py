"""MCP Apps: servers' pages, shown in frames of our page, and the tool calls they make."""
