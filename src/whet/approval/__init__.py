"""The gate that stands before every tool call."""
