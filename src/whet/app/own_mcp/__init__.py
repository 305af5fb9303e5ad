"""Whet as an MCP server: its tools and resources, however a client's calls arrive."""
