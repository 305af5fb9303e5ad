"""Plugins by other authors: found, loaded and called so that their failures are contained. Imported on
demand."""
