"""The gateway: the agent on chat platforms, in one process for all of them."""
