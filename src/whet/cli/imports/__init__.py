"""The command `whet import`."""
