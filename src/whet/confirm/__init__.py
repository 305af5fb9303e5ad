"""The confirmation service: a high-risk action waits until a person decides."""
