"""The MCP server of a gateway, which forwards clients' requests to the servers of a toolbox."""
