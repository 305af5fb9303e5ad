"""Attacks on the real program, one module for each class. Each lists its attempts in ATTEMPTS; no attempt may
have an effect. `python -m tests.attacks` prints how many there are."""
