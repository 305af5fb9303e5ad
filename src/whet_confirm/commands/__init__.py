"""The commands of `whet confirm`."""
