"""The agent where people are: chat platforms, one process for all of them."""
