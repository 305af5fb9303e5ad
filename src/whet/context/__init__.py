"""The model's view of a conversation: system prompt, token estimates, repair, and the host of context
engines."""
