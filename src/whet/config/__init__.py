"""Settings: their schema, where each value came from, the home's paths, and secrets."""
