"""The turn: session, loop, dispatch."""
