"""What gate and sandbox hold together: commands with an effect outside, and ordinary work."""
