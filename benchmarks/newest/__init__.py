"""The newest frameworks, MCP servers, ACP clients and agents of others, installed and driven: a matrix."""
