"""Editors that speak the Agent Client Protocol: sessions, turns, permissions over standard input and output.

Imported only by `whet acp`, because its modules need the extra `acp`.
"""
