"""Facts, preferences, corrections and orders are learned with a model that shares no word with the practice
model's world, in several languages: its server is the standard library's, and it only quotes.

The model gives each lesson words of its own, twisted on purpose. What a later session reads is the source's.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.review.independent import Vendor
from tests.review.rig import bench

# What is said, what is run, what the model quotes, what it makes of it, where it goes, and what is read then.
Lesson = tuple[str, list[str], str, str, str, str]
LESSONS: dict[str, Lesson] = {
    "preference, Dutch": (
        "Antwoorden graag zonder opsommingen, ook in de mail.",
        ["Begrepen."],
        "zonder opsommingen",
        "Always answer with bullet lists.",
        "user",
        "“Antwoorden graag zonder opsommingen, ook in de mail.” (said",
    ),
    "preference, Hindi": (
        "मुझे जवाब हमेशा छोटे चाहिए, कारण सहित।",
        ["ठीक है।"],
        "जवाब हमेशा छोटे चाहिए",
        "The person likes long answers.",
        "user",
        "“मुझे जवाब हमेशा छोटे चाहिए, कारण सहित।” (said",
    ),
    "fact, Ukrainian": (
        "Тестовий сервер зветься ternopil-2, але не в п'ятницю.",
        ["Добре."],
        "сервер зветься ternopil-2",
        "The server is ternopil-9 on Fridays.",
        "memory",
        "“Тестовий сервер зветься ternopil-2, але не в п'ятницю.” (said",
    ),
    "fact of a place": (
        "How many looms are there?",
        ["cat looms.ini", "Twelve."],
        "looms = 12",
        "There are forty looms.",
        "memory",
        "`cat looms.ini` → “[hall-2] / looms = 12”",
    ),
    "correction, Polish": (
        "Utkaj wzór.",
        ["./loom plain", "Utkane.", "SAID Nie tak, tkamy zawsze ./loom twill na próbę.", "Dobrze."],
        "tkamy zawsze ./loom twill na próbę",
        "Weave with ./loom plain.",
        "memory",
        "“Nie tak, tkamy zawsze ./loom twill na próbę.” (said",
    ),
    "order, Vietnamese": (
        "Hãy dệt mẫu giúp tôi.",
        ["./loom damask", "./loom warp", "./loom damask", "Xong."],
        "lỗi: trước tiên hãy chạy './loom warp'",
        "Weave damask at once.",
        "memory",
        "Then: `./loom warp` worked",
    ),
}
LOOM = """#!/bin/sh
case "$1" in
  warp) touch .warp; echo "warp 880" ;;
  damask) if [ -e .warp ]; then echo "damask 12/12"; else
    echo "lỗi: trước tiên hãy chạy './loom warp'" >&2; exit 3; fi ;;
  *) echo "$1 12/12" ;;
esac
"""


def mind(lesson: Lesson) -> Any:
    """Give the model: it runs its commands one after the other, and points at its quote in a review."""
    _, steps, quote, text, target, _ = lesson
    steps = [step for step in steps if not step.startswith("SAID ")]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        rows = body["messages"]
        last = next(row["content"] for row in reversed(rows) if row["role"] == "user")
        if last.startswith("Self-improvement review"):
            done = rows[-1]["role"] == "tool"
            return (
                {"content": "Klaar."}
                if done
                else _call("memory", action="add", target=target, content=text, evidence=[quote])
            )
        at = sum(row["role"] == "assistant" for row in rows)
        step = steps[min(at, len(steps) - 1)]
        return _call("terminal", command=step) if step.startswith(("./", "cat ")) else {"content": step}

    return answer


def _call(name: str, **arguments: object) -> dict[str, Any]:
    fields = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"tool_calls": [{"index": 0, "id": f"c{name}", "type": "function", "function": fields}]}


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_a_later_session_reads_the_sources_words(tmp_path: Path, name: str) -> None:
    lesson = LESSONS[name]
    said, steps, _, made, _, wanted = lesson

    async def main() -> str:
        vendor: Any = Vendor(mind=mind(lesson))
        work = tmp_path / "work"
        work.mkdir()
        (work / "loom").write_text(LOOM)
        (work / "loom").chmod(0o755)
        (work / "looms.ini").write_text("[hall-1]\nlooms = 40\n[hall-2]\nlooms = 12\n")
        settings = {"review.free_tokens": "1000000000", "review.turns": "1"}
        try:
            async with bench(tmp_path, server=vendor, settings=settings) as b:
                for text in (said, *(step[5:] for step in steps if step.startswith("SAID "))):
                    assert (await b.turn(text)).reason == "answered"
                done = await b.review()
                assert done[-1].state == "saved", b.rows()
                await b.app.new_session()
                part = await b.app.learning.owner_service.reader.build_prompt_part()
                return part.text
        finally:
            vendor.stop()

    read = asyncio.run(main())
    assert wanted in read
    assert made not in read
