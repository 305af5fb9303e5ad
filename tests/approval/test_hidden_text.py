"""A question says that the text of a call has hidden characters, and lists their codes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.approval.test_gate import Bench, Someone
from whet.contract.changes import TextChange


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        (None, "ok \u202e# \x1b[2J\n", ["\\e, <U+202E>"]),
        ("a\u200b\nb\r\n", "a\u200b\nc\r\n\té 漢 ✔️\n", []),
        ("a\n", "a\rb\n", ["\\r"]),
        (None, "\x00\x07\x1b\u200b\u202e\n", ["\\0, <U+0007>, \\e, <U+200B> …"]),
    ],
)
def test_a_question_says_that_the_new_text_has_hidden_characters(
    tmp_path: Path, old: str | None, new: str, codes: list[str]
) -> None:
    async def preview(_: Mapping[str, object]) -> tuple[TextChange, ...]:
        return (TextChange("a.py", str(tmp_path / "a.py"), old, new),)

    bench = Bench(tmp_path, Someone())
    write, command = bench.call("write_file", path="a.py"), bench.call("terminal", command=f"echo '{new}'")
    for call in (msgspec.structs.replace(write, preview=preview), command):
        asyncio.run(bench.gate.decide(call, bench.events.append))
    begin = "the text has characters that hide or reorder text, shown as codes: "
    end = "; a lasting yes to this covers such text, too"
    shown = [
        [reason.removeprefix(begin).removesuffix(end) for reason in asked.reasons if reason.startswith(begin)]
        for asked in bench.person.asked
    ]
    assert shown[0] == codes and (shown[1] == codes or old)
