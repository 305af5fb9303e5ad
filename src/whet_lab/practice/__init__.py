"""The practice model: a scripted replacement for a model server, not a language model."""
