"""Read and change the settings, and find the home's files and secrets."""
