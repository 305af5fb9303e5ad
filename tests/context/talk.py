"""Long conversations as chat dicts, numbered as the host numbers them, and models that summarise them."""

from __future__ import annotations

import json
from typing import Any

from tests.support import FixedClock
from whet.context import rows as chat
from whet.context import summary
from whet.context.compressor import Compressor, CompressorSettings

BODY = "## 2. Goal\nShip the orders service [#1].\n## 4. Completed actions\n1. Built it with terminal [#3]."


class Model:
    """Answers with the next of its texts (the last one for ever), or raises it; keeps what it was asked."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers: list[str | Exception] = list(answers) or [BODY]
        self.asked: list[str] = []
        self.limits: list[tuple[int, float]] = []

    def __call__(self, messages: list[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        assert [row["role"] for row in messages] == ["user"]
        self.asked.append(messages[0]["content"])
        self.limits.append((max_tokens, timeout_s))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Talk:
    """A conversation that grows; each row gets the next `_seq`, as rows of the store have it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.seq = 0

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        self.seq += 1
        self.rows.append({**row, "_seq": self.seq})
        return self.rows[-1]

    def user(self, text: str) -> dict[str, Any]:
        return self.add({"role": "user", "content": text})

    def reply(self, text: str) -> dict[str, Any]:
        return self.add({"role": "assistant", "content": text})

    def call(self, name: str, result: str, **arguments: Any) -> None:
        id_ = f"call{self.seq}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        self.add(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": id_, "type": "function", "function": function}],
            }
        )
        self.add({"role": "tool", "tool_call_id": id_, "name": name, "tool_name": name, "content": result})

    def work(self, steps: int) -> None:
        """Prose and calls, about 300 tokens a step, that pruning alone can't make small."""
        for _ in range(steps):
            number = self.seq
            self.call("terminal", f"compiled unit {number} " + "ok. " * 30, command=f"make unit{number}")
            self.reply(f"Unit {number} is built. " + f"Its notes say that part {number} holds. " * 18)
            self.user(f"Now go on with the unit after number {number}, and keep the notes short, please.")

    def toil(self, steps: int) -> None:
        """Calls alone, about 80 tokens each, in answer to what was said last."""
        for _ in range(steps):
            number = self.seq
            self.call("terminal", f"checked unit {number} " + "fine. " * 40, command=f"check unit{number}")


def engine(model: Model | None = None, window: int = 8_000, clock: FixedClock | None = None, **settings: Any):
    compressor = Compressor(model or Model(), clock or FixedClock(), CompressorSettings(**settings))
    compressor.update_model("m", window)
    return compressor


def full(window: int = 8_000) -> Talk:
    """A conversation just past the threshold of a window."""
    talk = Talk()
    talk.user("Build the orders service; every unit of it, and tell me about each of them.")
    while chat.estimate(talk.rows) < window * 3 // 4:
        talk.work(1)
    return talk


def summary_of(rows: list[dict[str, Any]]) -> str:
    texts = [chat.text_of(row) for row in rows if summary.is_summary(row)]
    assert len(texts) == 1
    return texts[0]


def assert_valid(rows: list[dict[str, Any]]) -> None:
    """Every call answered once, right after it and in order; no other results; a person's message there."""
    waiting: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            assert waiting, "a result without a call"
            assert waiting.pop(0) == row["tool_call_id"]
            continue
        assert not waiting, "an unanswered call"
        for call in row.get("tool_calls") or ():
            waiting.append(call["id"])
            json.loads(call["function"]["arguments"])
    assert not waiting
    assert any(row["role"] == "user" for row in rows)
