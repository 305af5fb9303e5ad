"""Chat platforms, each written once: what the gateway and the confirmation service reach people by."""
