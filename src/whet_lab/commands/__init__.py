"""The commands `whet demo`, `whet eval` and `whet practice`."""
