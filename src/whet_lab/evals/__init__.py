"""Evaluations of learning: generated worlds, arms and a person's own tasks, run on the real program."""
