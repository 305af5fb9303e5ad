"""The conversation at the terminal: the prompt, slash commands, keys and their reports."""
