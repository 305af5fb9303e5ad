"""Connect to chat platforms, for the gateway and the confirmation service."""
