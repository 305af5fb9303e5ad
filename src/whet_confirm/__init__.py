"""The confirmation service: an action waits until a person approves or denies it, or time runs out."""
