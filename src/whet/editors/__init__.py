"""Serve editors by the Agent Client Protocol (ACP), over standard input and output.

Only `whet acp` imports this package, because its modules need the extra `acp`.
"""
