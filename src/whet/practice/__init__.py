"""The practice model: a scripted stand-in for a model server, never a language model."""
