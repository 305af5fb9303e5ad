"""Notes files filled beyond their limit: the part that sessions read, and the notices about the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.app.opened import ask, open_app, practice_model
from whet.app.own_mcp.resources import read_resource
from whet.cli.doctor import doctor
from whet.cli.learned_items.memory import memory
from whet.config.paths import Home
from whet.contract.events import Event, Notice
from whet.memory import notes, reader
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

MANY = "# Memory\n\n" + "".join(f"- fact {number} about the work\n" for number in range(8_000))
PITFALLS = "\n## Pitfalls\n\n" + "".join(f"- trap {number}\n" for number in range(1_000))
LINE = "sessions begin with {read} of the 9,000 entries of memories/MEMORY.md"


def test_entries_beyond_the_limit_stay_out_of_the_prompt_and_a_line_says_how_many() -> None:
    texts: dict[notes.Target, str] = {"memory": MANY + PITFALLS, "user": "- likes tea\n"}
    part = reader.build_notes_part(texts, (), 3_000)
    assert len(part.text) < 3_500 and "- likes tea" in part.text
    assert "- fact 7999 " in part.text and "- fact 0 " not in part.text, "of two that differ the later holds"
    assert "- trap 999" in part.text and "- trap 0\n" not in part.text
    shown = part.text.count("\n- ") - 1
    assert f"({LINE.format(read=shown)}; the others come with messages that they are about)" in part.text
    assert len(part.items) == shown + 1


@pytest.mark.parametrize("text", ["# Memory\n\n- one\n- two\n", "one\n\ntwo"])
def test_a_file_exactly_at_its_limit_is_read_whole_and_one_over_it_is_not(text: str) -> None:
    limit = len(text.strip())
    assert [entry.text for entry in notes.choose_entries(text, limit)] == ["one", "two"]
    assert notes.describe_left_out("memory", text, limit) == ""
    assert [entry.text for entry in notes.choose_entries(text, 6)] == ["two"]


def test_one_entry_longer_than_the_limit_leaves_room_for_the_others() -> None:
    text = f"- {'long ' * 1_000}\n- short\n"
    assert [entry.text for entry in notes.choose_entries(text, 100)] == ["short"]
    assert "1 of the 2 entries" in notes.describe_left_out("memory", text, 100)


def test_a_persons_words_come_before_what_a_file_showed() -> None:
    said = "“Never deploy on Fridays.” (said 2026-01-02)"
    shown = [f"config/app.toml: “port-{number} = 25” (2026-02-03)" for number in range(40)]
    text = "".join(f"- {line}\n" for line in (said, *shown))
    chosen = [entry.text for entry in notes.choose_entries(text, 300)]
    assert chosen[0] == said and chosen[-1] == shown[-1] and len(chosen) < 8


def test_held_out_items_do_not_let_others_in() -> None:
    whole = reader.build_notes_part({"memory": MANY}, (), 3_000)
    less = reader.build_notes_part({"memory": MANY}, whole.items[:5], 3_000)
    assert less.items == whole.items[5:]


@pytest.mark.slow
def test_model_person_doctor_and_other_programs_learn_what_is_left_out(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    path = home.root / "memories" / "MEMORY.md"
    path.parent.mkdir(parents=True)
    path.write_text(MANY)

    async def main() -> tuple[str, list[Event], str]:
        with PracticeServer(script=[ScriptedReply("done")]) as server:
            async with open_app(home.root, tmp_path, practice_model(server.base_url)) as app:
                seen: list[Event] = []
                await ask(await app.new_session(), "do it", seen)
                resource = await read_resource(app.learning.owner_service, "whet://memory/memory")
                return str(server.requests[0].body), seen, str(resource)

    body, seen, resource = asyncio.run(main())
    line = "more than memory.memory_chars (30,000): no note can be added"
    assert "of the 8,000 entries" in body and "fact 0 " not in body
    assert any(line in event.text for event in seen if isinstance(event, Notice))
    assert "more entries of" in resource and "fact 7999 " in resource and "fact 0 " not in resource
    shown = CliRunner().invoke(memory, ["show"], obj=home, env={"COLUMNS": "400"}).stdout
    assert line in shown and "fact 7999 " in shown
    checked = CliRunner().invoke(doctor, obj=home, env={"COLUMNS": "400"}).stdout
    assert f"notes    {path.relative_to(home.root)}" in checked and line in checked
