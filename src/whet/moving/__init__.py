"""Import from other agents: their sessions, settings, memory and skills.

One reader per program yields its sessions as values; `importing.py` stores them. A source is never written
to.
"""
