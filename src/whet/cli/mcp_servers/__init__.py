"""The command `whet mcp`."""
