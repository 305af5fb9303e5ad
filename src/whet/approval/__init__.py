"""The gate before every tool call: rules, the analysis of shell commands, and the question to a person."""
