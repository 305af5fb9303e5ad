"""A fact that a reading command shows once more says when; what may write, or fails, is left as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.review.rig import SAID, Bench, bench, does, remember, says, use
from whet.app.review_worker import looking
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.origin import Origin
from whet.practice.script import ScriptedReply
from whet.sandbox.engine import probe as engine

needs_jail = pytest.mark.skipif(not engine().holds, reason=f"no sandbox holds here: {engine().line}")
FACT = "port = 2525"


def script(command: str) -> list[ScriptedReply]:
    return [
        does(use("terminal", command=command)),
        says("It is 2525."),
        says("Understood: ./check --fast."),
        does(remember("Mail goes to port 2525.", FACT)),
        says("Saved one fact."),
    ]


async def learned(b: Bench) -> str:
    (b.app.workspace / "app.toml").write_text(f"[mail]\n{FACT}\n")
    await b.turn("Which port does the mail go to?")
    await b.turn(SAID)
    await b.review()
    return b.memory()


def run(tmp_path: Path, command: str, settings: dict[str, str] | None = None) -> tuple[str, Bench]:
    async def main() -> tuple[str, Bench]:
        async with bench(tmp_path, script(command), settings=settings) as b:
            text = await learned(b)
            if "(checked " in text:
                [row] = [one for one in b.rows() if one.kind == "memory"]
                assert row.state == "active" and row.after in text
                await b.app.learning.desk.undo(row.id, Origin("user"))
                assert FACT not in b.memory()
            return text, b

    return asyncio.run(main())


@needs_jail
def test_what_a_reading_command_shows_again_says_when_and_can_be_taken_back(tmp_path: Path) -> None:
    text, _ = run(tmp_path, "cat app.toml")
    assert FACT in text and "(checked 20" in text


@needs_jail
def test_what_the_gate_does_not_call_reading_is_not_run_again(tmp_path: Path) -> None:
    text, b = run(tmp_path, "cat app.toml; echo ran >> ran.txt")
    assert FACT in text and "(checked " not in text
    assert (b.home.parent / "work" / "ran.txt").read_text().count("ran") == 1


@needs_jail
def test_a_file_that_says_something_else_by_now_is_not_called_checked(tmp_path: Path) -> None:
    async def main() -> str:
        async with bench(tmp_path, script("cat app.toml")) as b:
            (b.app.workspace / "app.toml").write_text(f"{FACT}\n")
            await b.turn("Which port does the mail go to?")
            await b.turn(SAID)
            (b.app.workspace / "app.toml").write_text("port = 25\n")
            await b.review()
            return b.memory()

    text = asyncio.run(main())
    assert FACT in text and "(checked " not in text


@pytest.mark.parametrize("settings", [{"sandbox.mode": "off"}, {"review.probes": "false"}])
def test_without_a_sandbox_or_a_yes_nothing_is_run(tmp_path: Path, settings: dict[str, str]) -> None:
    text, _ = run(tmp_path, "cat app.toml", settings=settings)
    assert FACT in text and "(checked " not in text


@needs_jail
def test_the_jail_of_a_probe_writes_nothing_in_the_workspace(tmp_path: Path) -> None:
    from whet.app.confining import confine

    home = Home(tmp_path / "home")
    home.ensure()
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("here\n")
    confinement = confine(home, load(home, {}, environ={}).settings.sandbox)
    try:
        path = {"PATH": "/usr/bin:/bin"}
        assert confinement.look(["cat", "a.txt"], path, work, 30) == "here\n"
        assert confinement.look(["sh", "-c", "echo x > b.txt"], path, work, 30) is None
        assert confinement.look(["sh", "-c", "exec 3<>/dev/tcp/127.0.0.1/1"], path, work, 30) is None
    finally:
        confinement.close()
    assert not (work / "b.txt").exists()
    look = looking(home, load(home, {}, environ={}).settings)
    assert look("cat a.txt", str(work)) == "here\n"
    assert look("touch b.txt", str(work)) is None
    assert look("sh -c 'eval cat a.txt; $X'", str(work)) is None  # would do no harm, but isn't known to read
    assert look("cat a.txt", str(work / "gone")) is None
