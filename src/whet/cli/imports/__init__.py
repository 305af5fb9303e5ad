"""The command `whet import`: move in from other agents."""
