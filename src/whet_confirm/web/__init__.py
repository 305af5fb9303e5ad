"""The page where people decide."""
