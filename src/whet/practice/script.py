"""Write what the practice server answers: replies, their calls and their faults."""

from __future__ import annotations

from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.script import rate_limit_reply as rate_limited

__all__ = ["Fault", "PracticeCall", "ScriptedReply", "rate_limited"]
