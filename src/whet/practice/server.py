"""Start the practice server (a scripted stand-in for a model server) from a program."""

from __future__ import annotations

from whet_lab.practice.server import PracticeServer

__all__ = ["PracticeServer"]
