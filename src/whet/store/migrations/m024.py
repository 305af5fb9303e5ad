"""The schema's step for sessions that plan: they only read until their plan is approved."""

from __future__ import annotations

M024_PLANNING = """
ALTER TABLE sessions ADD COLUMN planning INTEGER NOT NULL DEFAULT 0;
"""
