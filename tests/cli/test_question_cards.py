"""Twenty questions at the terminal: each says what will happen, why it is asked, and what each key does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.asked import in_terminal
from tests.writes import WRITES

PARTS = {
    "what happens, in one sentence": r"Whet wants to (create|change|delete|run|replace|write)\b.*\S",
    "why it is asked": r"\n +- [a-z].*",
    "the first answer": r"1  Yes, once",
    "the answer for the session": r"2  Yes, for this session.*(\n +.*)?\(2 and Enter\)",
    "the no, and what Enter and Esc do": r"› \d  No  \(Enter, Esc\)",
    "changing it": r"Tab edits the call, then it runs",
    "a yes in words": r"yes: as 1",
    "a reason": r"other words: no, and\s+why",
    "where to type": r"A number or words; Enter is no:",
}


@pytest.mark.unconfined
@pytest.mark.slow
def test_each_question_says_what_happens_and_what_each_key_does(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    shown = in_terminal(work, one_shot=False)
    cards = {kind: "Whet wants to" + shown[kind].rpartition("Whet wants to")[2] for kind in WRITES}
    poor = [
        f"{kind}: {part}\n{card[:2_000]}"
        for kind, card in cards.items()
        for part, pattern in PARTS.items()
        if not re.search(pattern, card.replace("\r", ""))
    ]
    assert len(cards) >= 20 and poor == []
