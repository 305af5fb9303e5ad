"""Decide whether the person corrected a turn, from the position of their message and the calls that followed.

No words are looked up, so every language is treated alike. A later message that states something is a
correction if its turn repeated the former turn's work in another way, or used a program that the message
names. If its turn only looked and answered, it may be a correction. A false alarm costs one review at
most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from whet.contract.tools import tags_of
from whet.memory import typed, units
from whet.store.reviews import TurnCall

Correction = Literal["", "said", "redone"]
_MIN_WORDS = 4
_MIN_PACKED_CHARS = 6
_PACKED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_PROGRAM = re.compile(r'"command":\s*"\s*([^\s"\\]+)')
_ALIKE = 0.6


def find_correction(text: str, calls: Sequence[TurnCall], before: Sequence[TurnCall]) -> Correction:
    """Return whether a message corrects the turn before it: work was redone, or something was only said.

    `calls` are those of the turn that the message began, `before` those of the previous turn.
    """
    typed_text = typed.split(text[:4_000])[0]
    stated = " ".join(item for item in units.sentences(typed_text) if not units.is_question(item))
    if len(stated.split()) < _MIN_WORDS and len(_PACKED.findall(stated)) < _MIN_PACKED_CHARS:
        return ""
    if any(_is_redone(call, item) for call in calls for item in before):
        return "redone"
    used = {match[1] for item in before if (match := _PROGRAM.search(item.arguments))}
    programs = (match[1] for call in calls if (match := _PROGRAM.search(call.arguments)))
    if used and any(name not in used and name in stated for name in programs):
        return "redone"
    return "" if any("looks" not in tags_of(call.name) for call in calls) else "said"


def _is_redone(call: TurnCall, earlier: TurnCall) -> bool:
    """Return whether a call repeats an earlier one with a change."""
    if call.name != earlier.name or call.arguments == earlier.arguments or "looks" in tags_of(call.name):
        return False
    new, old = set(re.findall(r"[\w./-]+", call.arguments)), set(re.findall(r"[\w./-]+", earlier.arguments))
    return len(new & old) >= _ALIKE * max(len(new), len(old))
