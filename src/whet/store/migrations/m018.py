"""The schema's step for goals at set times and for hours in which nothing is sent."""

from __future__ import annotations

M018_GOAL_SCHEDULES = """
ALTER TABLE schedules ADD COLUMN goal TEXT NOT NULL DEFAULT '';    -- JSON; empty: a turn, not a goal
ALTER TABLE schedules ADD COLUMN quiet TEXT NOT NULL DEFAULT '';   -- 22:00-07:00 in its zone
ALTER TABLE schedule_runs ADD COLUMN held TEXT NOT NULL DEFAULT '';  -- the chat that waits for its answer
"""
