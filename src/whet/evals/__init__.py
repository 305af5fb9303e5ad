"""Does learning help? Worlds, arms and the user's own tasks, run on the real program and counted honestly."""
