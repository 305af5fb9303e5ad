"""Settings of other agents with which their tool calls wait for a person: written, checked and removed."""
