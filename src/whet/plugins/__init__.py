"""Find, load and call plugins by other authors, so that their failures are contained."""
