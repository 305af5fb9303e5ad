"""The command `whet mcp`: add, list, try and log in to MCP servers; be one."""
