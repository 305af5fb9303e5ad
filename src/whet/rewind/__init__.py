"""Files that can be taken back: a workspace's state before and after each step, and the way back to it."""
