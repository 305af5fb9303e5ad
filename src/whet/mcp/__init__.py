"""The way to other programs' tools: MCP servers over pipes and over HTTP."""
