"""Other people's code: found, loaded and called so that its failures stay its own; imported on demand."""
