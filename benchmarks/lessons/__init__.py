"""Corpora of lessons, written for the gate: genuine ones, fabricated ones, and poison that must not get in."""
