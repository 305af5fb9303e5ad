"""Settings: their schema, the origin of each value, the home's paths, and secrets."""
