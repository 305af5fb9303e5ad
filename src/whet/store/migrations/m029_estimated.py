"""Schema step 29: how many of a session's tokens are Whet's own estimate."""

from __future__ import annotations

M029_ESTIMATED_TOKENS = """
ALTER TABLE sessions ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
"""
