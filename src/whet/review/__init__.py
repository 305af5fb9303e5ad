"""The review of a finished turn: when one is called for, the fork that does it, the worker that runs it."""
