"""Rewinding files: records a workspace before and after each step, and restores an earlier state."""
