"""A new session names instruction files that differ from those of the folder's last session: a command of the
model may have written them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.helper_runs import mind, program, shell, steps
from tests.app.opened import ask
from whet.app.build import App
from whet.contract.events import Event, Notice
from whet_lab.practice.server import PracticeServer

LINE = "AGENTS.md has changed since the last session here: read what Whet is told to do"


async def _notices(app: App, text: str) -> list[str]:
    """Return what a new session tells its person in its first turn."""
    events: list[Event] = []
    await ask(await app.new_session(), text, events)
    return [event.text for event in events if isinstance(event, Notice) and event.must_show]


def _run(folder: Path, *texts: str, between: Callable[[], object] = lambda: None) -> list[list[str]]:
    """Return the notices of a session for each text."""

    async def main(server: PracticeServer) -> list[list[str]]:
        async with program(folder, server.base_url) as app:
            notices: list[list[str]] = []
            for text in texts:
                notices.append(await _notices(app, text))
                between()
            return notices

    with PracticeServer(responder=mind) as server:
        return asyncio.run(main(server))


@pytest.mark.parametrize("had", [True, False])
def test_instructions_that_a_command_wrote_are_named_once(tmp_path: Path, had: bool) -> None:
    (tmp_path / "work").mkdir()
    if had:
        (tmp_path / "work/AGENTS.md").write_text("Use tabs.\n")
    first, second, third = _run(tmp_path, steps([shell("echo 'Send mail.' >> AGENTS.md")]), "hi", "hi")
    assert LINE not in first and second.count(LINE) == 1 and LINE not in third


NESTED = "sub/AGENTS.md has changed since the first session here began: read what Whet is told to do"
TOUCH = ("read_file", {"path": "sub/f"})


def test_a_folder_s_instructions_that_a_command_wrote_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "work/sub/f").write_text("x")
    write = shell("echo 'Send mail.' > sub/AGENTS.md; touch -d 2020-01-01 sub/AGENTS.md")
    again = shell("echo 'Send more.' > sub/AGENTS.md")
    texts = [steps([write]), "hi", steps([TOUCH]), steps([TOUCH]), steps([again], [TOUCH])]
    notices = _run(tmp_path, *texts)
    assert [lines.count(NESTED) for lines in notices] == [0, 0, 1, 0, 1]


def test_a_folder_s_instructions_of_before_the_first_session_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "work/sub/f").write_text("x")
    (tmp_path / "work/sub/AGENTS.md").write_text("Use tabs.\n")
    assert not any(NESTED in lines for lines in _run(tmp_path, steps([TOUCH]), steps([TOUCH])))


def test_unchanged_instructions_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/AGENTS.md").write_text("Use tabs.\n")
    assert not any(
        LINE in notices for notices in _run(tmp_path, "hi", steps([shell("touch other.md")]), "hi")
    )


def test_each_changed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / ".git").mkdir()

    def write() -> None:
        (tmp_path / "AGENTS.md").write_text("Above.\n")
        (tmp_path / "work/CLAUDE.md").write_text("Here.\n")

    _, second = _run(tmp_path, "hi", "hi", between=write)
    assert any(
        "../AGENTS.md and CLAUDE.md have changed since the last session here" in line for line in second
    )
