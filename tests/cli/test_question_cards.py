"""Twenty questions at the terminal: each says what will happen, why it is asked, and what each key does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.asked import in_terminal
from tests.writes import WRITES
from whet.terminal.questions import TerminalQuestion

PARTS = {
    "what happens, in one sentence": r"Whet wants to (create|change|delete|empty|replace|run)\b.*\S",
    "why it is asked": r"\n  Why asked: (mode \"ask\" asks before every|[a-z]).*",
    "what takes it back": r"\n  To undo:   /rewind \(shell: whet rewind\) undoes this and Whet's",
    "what ends a lasting yes": r"\n  Take back: /approvals ends 2( and always)? at any time",
    "the first answer": r"\n  1  Yes, once: only this (change|command); it allows nothing later",
    "the lasting answer": r"don't\s+ask\s+again\s+to\s+(create|overwrite|run)\b",
    "how long it lasts": r"\n  2  Yes, and until you quit this chat ",
    "for good": r"like 2, also in reopened or new chats of this very folder|\.git/hooks",
    "the no, and what Enter and Esc do": r"\n› 3  No: (nothing is changed|it does not run) \(Enter and Esc",
    "changing it": r"or Tab +(edit the (proposed (file|diff)|command); then it asks|does nothing here: )",
    "a reason": r"or else +any other text is a no; the model reads it as the reason",
    "where to type": r"Type a number or a word, then Enter. Enter alone is no:",
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


async def test_a_screen_that_is_too_low_shows_no_part_of_an_answer() -> None:
    hints = [
        ("  or always  ", "a lasting yes " * 4 + "ends"),
        ("  or else    ", "any other text " * 4 + "ends"),
    ]
    for height in range(2, 20):
        question = TerminalQuestion([("", "Whet wants to run make:")], hints=hints)
        text = "\n".join("".join(part for _, part in row) for row in question.rows(40, height))
        assert text.count("  or ") == text.count("ends"), (height, text)
    assert text.count("ends") == 2
