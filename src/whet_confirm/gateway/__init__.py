"""A gateway between an agent and an MCP server: tool calls wait until a person has decided on them."""
