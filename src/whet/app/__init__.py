"""The composition root and the library's API."""
