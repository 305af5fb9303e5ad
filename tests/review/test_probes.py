"""A fact that a reading command shows once more says when; what may write, or fails, is left as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.lessons.world import Run, Step, User, World, add

from tests.memory.conftest import world as world
from tests.review.rig import SAID, Bench, bench, does, remember, says, use
from whet.app.learning.review_worker import make_probe
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.origin import Origin
from whet.review.probes import run_probes
from whet.sandbox.engine import probe as engine
from whet.store import ledger
from whet_lab.practice.script import ScriptedReply

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
    (b.app.services.workspace / "app.toml").write_text(f"[mail]\n{FACT}\n")
    await b.turn("Which port does the mail go to?")
    await b.turn(SAID)
    await b.review()
    return b.memory()


def run(tmp_path: Path, command: str, settings: dict[str, str] | None = None) -> tuple[str, Bench]:
    async def main() -> tuple[str, Bench]:
        async with bench(tmp_path, script(command), settings=settings) as b:
            text = await learned(b)
            if "(checked " in text:
                [row] = [ledger_row for ledger_row in b.rows() if ledger_row.kind == "memory"]
                assert row.state == "active" and row.after in text
                await b.app.learning.owner_service.undo(row.id, Origin("user"))
                assert FACT not in b.memory()
            return text, b

    return asyncio.run(main())


@pytest.mark.slow
@needs_jail
def test_what_a_reading_command_shows_again_says_when_and_can_be_taken_back(tmp_path: Path) -> None:
    text, _ = run(tmp_path, "cat app.toml")
    assert FACT in text and "(checked 20" in text


@pytest.mark.slow
@needs_jail
def test_what_the_gate_does_not_call_reading_is_not_run_again(tmp_path: Path) -> None:
    text, b = run(tmp_path, "cat app.toml; echo ran >> ran.txt")
    assert FACT in text and "(checked " not in text
    assert (b.home.parent / "work" / "ran.txt").read_text().count("ran") == 1


@pytest.mark.slow
@needs_jail
def test_a_file_that_says_something_else_by_now_is_not_called_checked(tmp_path: Path) -> None:
    async def main() -> str:
        async with bench(tmp_path, script("cat app.toml")) as b:
            (b.app.services.workspace / "app.toml").write_text(f"{FACT}\n")
            await b.turn("Which port does the mail go to?")
            await b.turn(SAID)
            (b.app.services.workspace / "app.toml").write_text("port = 25\n")
            await b.review()
            return b.memory()

    text = asyncio.run(main())
    assert FACT in text and "(checked " not in text


@pytest.mark.parametrize("settings", [{"sandbox.mode": "off"}, {"review.probes": "false"}])
def test_without_a_sandbox_or_a_yes_nothing_is_run(tmp_path: Path, settings: dict[str, str]) -> None:
    text, _ = run(tmp_path, "cat app.toml", settings=settings)
    assert FACT in text and "(checked " not in text


@pytest.mark.slow
@needs_jail
def test_the_jail_of_a_probe_writes_nothing_in_the_workspace(tmp_path: Path) -> None:
    from whet.app.confining import confine

    home = Home(tmp_path / "home")
    home.ensure()
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("here\n")
    with closing(confine(home, load(home, {}, environ={}).settings.sandbox)) as confinement:
        path = {"PATH": "/usr/bin:/bin"}
        assert confinement.run_read_only(["cat", "a.txt"], path, work, 30) == "here\n"
        assert confinement.run_read_only(["sh", "-c", "echo x > b.txt"], path, work, 30) is None
        assert confinement.run_read_only(["sh", "-c", "exec 3<>/dev/tcp/127.0.0.1/1"], path, work, 30) is None
    assert not (work / "b.txt").exists()
    look = make_probe(home, load(home, {}, environ={}).settings)
    assert look("cat a.txt", str(work)) == "here\n"
    assert look("touch b.txt", str(work)) is None
    assert look("sh -c 'eval cat a.txt; $X'", str(work)) is None  # would do no harm, but isn't known to read
    assert look("cat a.txt", str(work / "gone")) is None


async def looked_at(
    world: World, steps: Sequence[Step], *notes: Sequence[str], printed: str = FACT, workspace: str = "/work"
) -> tuple[list[str], list[str]]:
    """Stage notes, each on its quotes; gives the commands that a probe runs, and the notes after it."""
    session_id = await world.session(steps)
    world.database.write_now(lambda db: db.execute("UPDATE sessions SET workspace = ?", (workspace,)))
    for number, quotes in enumerate(notes):
        origin = Origin(
            "review", session_id, tool_call_id=f"c{number}", parent_session_id=session_id, task_id="review"
        )
        outcome = await world.learning.submit(add(" ".join(quotes), *quotes), origin)
        assert outcome.ok, outcome.text
    ran: list[str] = []

    def look(command: str, workspace: str) -> str:
        ran.append(command)
        return f"{printed}\n"

    seen = await asyncio.to_thread(run_probes, world.database, "review", (), look, "2026-11-21")
    rows = world.database.read_now(lambda db: ledger.list_task_rows(db, "review", ("staged",)))
    assert seen == [row.id for row in rows if "(checked" in row.after]
    return ran, [row.after for row in rows]


SHOWN = Run("terminal", "cat app.toml", FACT)


def test_a_fact_that_one_command_shows_is_looked_at_once_more(world: World) -> None:
    ran, [note] = asyncio.run(looked_at(world, [User("Which port is it?"), SHOWN], [FACT]))
    assert ran == ["cat app.toml"] and note.endswith("(checked 2026-11-21)")


RELAY = "The mail goes out by the relay of the port office."
PAGE = Run("web_fetch", {"url": "https://x.example"}, "relay = x")
FAILED = [
    User("Ship it."),
    Run("terminal", "ship box7", "error: run `prep box7` before `ship box7`", ok=False),
    Run("terminal", "prep box7", FACT),
    Run("terminal", "ship box7", "box7 is on its way"),
]


@pytest.mark.parametrize(
    ("steps", "quotes"),
    [
        ([User(RELAY), SHOWN], ("goes out by the relay", FACT)),
        (FAILED, ("run `prep box7` before", FACT)),
        ([User("Which port?"), PAGE, SHOWN], ("relay = x", FACT)),
        ([User("Which port?"), Run("read_file", {"path": "app.toml"}, f"1|{FACT}")], (FACT,)),
    ],
    ids=["a word of the person", "a failure", "a page", "a file"],
)
def test_a_fact_that_rests_on_anything_but_commands_of_this_machine_is_not_looked_at(
    world: World, steps: list[Step], quotes: tuple[str, ...]
) -> None:
    ran, [note] = asyncio.run(looked_at(world, steps, quotes))
    assert ran == [] and "(checked" not in note


def test_three_commands_are_run_again_and_no_more(world: World) -> None:
    names = ("smtp", "imap", "ldap", "dns")
    shown = [Run("terminal", f"cat {name}.toml", f"{name} = {name}9") for name in names]
    notes = [[f"{name} = {name}9"] for name in names]
    ran, after = asyncio.run(
        looked_at(world, [User("Which ports?"), *shown], *notes, printed="\n".join(map("".join, notes)))
    )
    assert ran == [f"cat {name}.toml" for name in names[:3]]
    assert ["(checked" in note for note in after] == [True, True, True, False]


def test_a_fact_of_two_results_is_seen_again_where_both_still_say_so(world: World) -> None:
    steps = [User("Which ports?"), SHOWN, Run("terminal", "cat b.toml", "relay = x9")]
    ran, [note] = asyncio.run(looked_at(world, steps, [FACT, "relay = x9"]))
    assert ran == ["cat app.toml", "cat b.toml"] and "(checked" not in note


def test_a_session_without_a_folder_says_not_where_to_look(world: World) -> None:
    ran, _ = asyncio.run(looked_at(world, [User("Which port is it?"), SHOWN], [FACT], workspace=""))
    assert ran == []


@pytest.mark.parametrize(("printed", "is_seen"), [(f"[mail]\n{FACT}", True), (f"[web]\n{FACT}", False)])
def test_a_line_below_another_heading_is_another_fact(world: World, printed: str, is_seen: bool) -> None:
    shown = Run("terminal", "cat app.toml", f"[mail]\n{FACT}")
    _, [note] = asyncio.run(
        looked_at(world, [User("Which port is it?"), shown], [f"[mail]\n{FACT}"], printed=printed)
    )
    assert ("(checked" in note) is is_seen
