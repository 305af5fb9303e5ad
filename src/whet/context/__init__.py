"""What the model sees: system prompt, token estimates, repair, the host."""
