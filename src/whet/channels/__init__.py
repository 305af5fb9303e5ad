"""Chat platforms, implemented once for the gateway and the confirmation service."""
