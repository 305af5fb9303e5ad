"""Moving in: what other agents kept becomes sessions, settings, memory and skills here.

A reader per program gives its sessions as values; `carry.py` stores them. A source is never written to.
"""
