"""The composition root and the synchronous face."""
