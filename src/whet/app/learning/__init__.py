"""Learning in the running program: memory and skills of its sessions, reviews of their turns."""
