"""The chapters of `whet demo`, played on the practice model (a scripted stand-in)."""
