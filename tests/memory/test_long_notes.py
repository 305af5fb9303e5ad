"""Notes files filled beyond their limit: the part that sessions read, and the notices about the rest."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.app.own_mcp.resources import read_resource
from whet.cli.doctor import doctor
from whet.cli.learned_items.memory import memory
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.events import Event, Notice
from whet.contract.protocols import NobodyPresent
from whet.memory import notes, reader
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

MANY = "# Memory\n\n" + "".join(f"- fact {number} about the work\n" for number in range(8_000))
PITFALLS = "\n## Pitfalls\n\n" + "".join(f"- trap {number}\n" for number in range(1_000))
LINE = "sessions read {read} of its 9,000 entries"


def test_entries_beyond_the_limit_stay_out_of_the_prompt_and_a_line_says_how_many() -> None:
    texts: dict[notes.Target, str] = {"memory": MANY + PITFALLS, "user": "- likes tea\n"}
    part = reader.notes_part(texts, (), {"memory": 3_000, "user": 1_500})
    assert len(part.text) < 3_500 and "- likes tea" in part.text
    assert "- fact 0 " in part.text and "- fact 7999 " not in part.text
    assert "- trap 0" in part.text and "- trap 999" not in part.text
    shown = part.text.count("\n- ") - 1
    assert part.left_out.endswith(LINE.format(read=shown)) and f"({part.left_out})" in part.text
    assert len(part.items) == shown + 1


@pytest.mark.parametrize("text", ["# Memory\n\n- one\n- two\n", "one\n\ntwo"])
def test_a_file_exactly_at_its_limit_is_read_whole_and_one_over_it_is_not(text: str) -> None:
    limit = len(text.strip())
    assert [entry.text for entry in notes.choose_entries(text, limit)] == ["one", "two"]
    assert notes.describe_left_out("memory", text, limit) == ""
    assert [entry.text for entry in notes.choose_entries(text, 6)] == ["one"]


def test_one_entry_longer_than_the_limit_leaves_room_for_the_others() -> None:
    text = f"- {'long ' * 1_000}\n- short\n"
    assert [entry.text for entry in notes.choose_entries(text, 100)] == ["short"]
    assert "1 of its 2 entries" in notes.describe_left_out("memory", text, 100)


def test_held_out_items_do_not_let_others_in() -> None:
    limits: dict[notes.Target, int] = {"memory": 3_000}
    whole = reader.notes_part({"memory": MANY}, (), limits)
    less = reader.notes_part({"memory": MANY}, whole.items[:5], limits)
    assert less.items == whole.items[5:]


@pytest.mark.slow
def test_model_person_doctor_and_other_programs_learn_what_is_left_out(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    path = home.root / "memories" / "MEMORY.md"
    path.parent.mkdir(parents=True)
    path.write_text(MANY)

    async def main() -> tuple[str, list[Event], str]:
        with PracticeServer(script=[ScriptedReply(text="done")]) as server:
            model = ModelSettings(provider="practice", base_url=server.base_url, model="practice")
            app = await App.start(home, Settings(model=model), {}, NobodyPresent(), tmp_path)
            async with contextlib.aclosing(app):
                session = await app.new_session()
                seen: list[Event] = []
                await run_turn(session, session.user_message("do it"), seen.append)
                resource = await read_resource(app.learning.desk, "whet://memory/memory")
                return str(server.requests[0].body), seen, str(resource)

    body, seen, resource = asyncio.run(main())
    line = "of its 8,000 entries"
    assert line in body and "fact 7999 " not in body
    assert any(line in event.text for event in seen if isinstance(event, Notice))
    assert line in resource and "fact 0 " in resource and "fact 7999 " not in resource
    shown = CliRunner().invoke(memory, ["show"], obj=home, env={"COLUMNS": "400"}).stdout
    assert line in shown and "fact 7999 " in shown
    checked = CliRunner().invoke(doctor, obj=home, env={"COLUMNS": "400"}).stdout
    assert f"notes    {path.relative_to(home.root)}" in checked and line in checked
