"""The laboratory: the practice model (a scripted stand-in), evaluations, and the demo."""
