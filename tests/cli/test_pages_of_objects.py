"""docs/chat.md names every key of the objects that a one-shot prints for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import msgspec

from tests.cli.running import flags, run
from whet.contract.events import Event
from whet_lab.practice.server import PracticeServer

PAGE = (Path(__file__).parents[2] / "docs" / "chat.md").read_text("utf-8")


def rows(heading: str) -> list[tuple[list[str], list[str]]]:
    """Return the names in code of both columns of the table below a heading."""
    section = PAGE.split(f"### {heading}\n")[1].split("\n#")[0]
    cells = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`(\w+)`", names), re.findall(r"`(\w+)`", text)) for names, text in cells]


def test_the_page_names_the_keys_of_every_event() -> None:
    named = {name: set(keys) for names, keys in rows("--stream-json") for name in names}
    for event in get_args(Event):
        keys = {field.encode_name for field in msgspec.structs.fields(event)}
        assert keys <= named.pop(str(msgspec.inspect.type_info(event).tag)), event  # pyright: ignore
    assert list(named) == ["type"]


def test_the_page_names_the_keys_of_a_result(tmp_path: Path) -> None:
    with PracticeServer() as server:
        result = json.loads(run(["chat", "-q", "one", "--json", *flags(server)], tmp_path)[1])
    named = {name for names, _ in rows("--json") for name in names}
    assert named == {*result, "error", "hint"}
