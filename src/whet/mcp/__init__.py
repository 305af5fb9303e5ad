"""Tools of other programs: MCP servers over pipes and over HTTP."""
