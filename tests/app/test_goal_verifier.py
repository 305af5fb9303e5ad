"""A verifier that was edited, hidden, replaced or led around proves nothing; an honest change passes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.app.goal_runs import Judge
from tests.app.opened import open_app, practice_model
from tests.app.verifiers import ATTACKS, HONEST, VerifierCase
from tests.rewind.running import ANSWER, shell
from whet.app.conversations.sessions import SessionOpener
from whet.config.permission_settings import ApprovalSettings, SandboxSettings
from whet.contract.errors import ToolError
from whet.goals.base import TreeBase, read_old_text, restore_tree, save_base
from whet.goals.pursuit import GoalRunner
from whet.goals.text import GoalWish
from whet.goals.verifier import find_changed_files, hash_guarded_files
from whet.store.goals import GoalRow
from whet_lab.practice.server import PracticeServer


async def _pursued(
    folder: Path, cases: Mapping[str, VerifierCase], person: Judge, mode: str = "off"
) -> dict[str, GoalRow]:
    """Pursue each case's goal, each in a workspace of its own, in one program."""
    goal_rows: dict[str, GoalRow] = {}
    script = [reply for case in cases.values() for reply in (*map(shell, case.commands), ANSWER)]
    with PracticeServer(script=script) as server:
        async with open_app(
            folder / "home",
            folder,
            practice_model(server.base_url, "practice-echo"),
            person,
            approval=ApprovalSettings(mode="auto", allow=("terminal",)),
            sandbox=SandboxSettings(mode="off" if mode == "off" else "auto"),
        ) as app:
            for name, case in cases.items():
                workspace = folder / name.replace(" ", "-").replace("'", "")
                (folder / "check-elsewhere.sh").write_text("python -m pytest -q\n")
                for path, text in case.files.items():
                    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
                    (workspace / path).write_text(text)
                services = msgspec.structs.replace(app.services, workspace=workspace)
                runner = GoalRunner(SessionOpener(services, app.sessions.helpers), lambda event: None)
                wish = GoalWish(case.text, case.verify, steps=len(case.commands) + 1)
                goal_rows[name] = await runner.pursue(*await runner.start(wish))
            return goal_rows


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


_QUICK = ("conftest", "leaves early")


def _attacked(folder: Path, names: Sequence[str]) -> None:
    ended = asyncio.run(_pursued(folder, {name: ATTACKS[name] for name in names}, Judge()))
    assert not {name: row for name, row in ended.items() if row.state == "achieved"}


@pytest.mark.slow
def test_an_attacked_verifier_is_not_passed(tmp_path: Path) -> None:
    _attacked(tmp_path, _QUICK)


@pytest.mark.slow
def test_nor_where_its_programs_are_swapped(tmp_path: Path) -> None:
    _attacked(tmp_path, ("GNUmakefile", "wrapped script", "sitecustomize", "file by a target's name"))


@pytest.mark.soak
@pytest.mark.parametrize("name", list(ATTACKS))
def test_no_attack_of_these_passes(tmp_path: Path, name: str) -> None:
    _attacked(tmp_path, [name])


@pytest.mark.slow
def test_a_person_is_asked_where_only_the_changed_check_passes(tmp_path: Path) -> None:
    person = Judge("accept")
    ended = asyncio.run(_pursued(tmp_path, {"wrapped script": ATTACKS["wrapped script"]}, person))
    assert ended["wrapped script"].state == "achieved"
    assert len(person.questions) == 1 and "inner.sh (changed)" in person.questions[0]


def _honest(folder: Path, names: Sequence[str]) -> None:
    person = Judge()
    ended = asyncio.run(_pursued(folder, {name: HONEST[name] for name in names}, person))
    assert not {name: row for name, row in ended.items() if row.state != "achieved"}
    assert not person.questions


@pytest.mark.slow
def test_an_honest_change_passes_without_a_question(tmp_path: Path) -> None:
    _honest(
        tmp_path, ("a test more", "script", "program of a script", "named settings", "what make has made")
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", list(HONEST))
def test_each_honest_change_passes_without_a_question(tmp_path: Path, name: str) -> None:
    _honest(tmp_path, [name])


@pytest.mark.soak
def test_the_checks_of_the_beginning_run_in_the_sandbox(tmp_path: Path) -> None:
    case = {"a test more": HONEST["a test more"]}
    ended = asyncio.run(_pursued(tmp_path, case, Judge(), "auto"))
    assert ended["a test more"].state == "achieved", ended


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("python3 v.py", "v.py"),
        ("bash -c 'python3 v.py'", "v.py"),
        ('sh -c "cd . && python3 ./v.py"', "v.py"),
        ("""env A=1 bash -lc 'sh -c "python3 v.py"'""", "v.py"),
        ('test "$(cat s.txt)" = yes', "s.txt"),
        ("test `cat s.txt` = yes", "s.txt"),
        ("""python3 -c 'import json; json.load(open("data/app.json"))'""", "data/app.json"),
        ("""bash -c "python3 -c 'open(\\"s.txt\\")'\"""", "s.txt"),
        ("eval 'ls data'", "data/app.json"),
        ("python3 -c 'import data; data.check()'", ""),  # a folder of code that the program imports
    ],
)
def test_the_files_that_a_command_names_are_guarded_at_any_depth(
    tmp_path: Path, command: str, names: str
) -> None:
    for name in ("v.py", "s.txt", "data/app.json", "other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert list(hash_guarded_files(command, tmp_path)) == names.split()


@pytest.mark.parametrize("what", ["a pipe", "a link to what never ends", "a link to nothing", "a folder"])
def test_what_takes_a_guarded_files_place_has_changed_and_holds_nobody_up(tmp_path: Path, what: str) -> None:
    path = tmp_path / "check.sh"
    path.write_text("true\n")
    guarded = hash_guarded_files("sh check.sh", tmp_path)
    path.unlink()
    match what:
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/zero" if "never" in what else "/nowhere")
    assert find_changed_files(guarded, tmp_path) == ["check.sh"]


def test_a_copy_of_the_beginning_has_its_links(tmp_path: Path) -> None:
    work, kept, copy = tmp_path / "work", tmp_path / "kept", tmp_path / "copy"
    for folder in (work / "lib", kept):
        folder.mkdir(parents=True)
    (work / "lib" / "current").symlink_to("1")
    base = save_base(work, kept, "")
    (work / "lib" / "current").unlink()
    (work / "lib" / "current").symlink_to("2")
    restore_tree(base, kept, (work, copy), set(), set())
    assert (copy / "lib" / "current").readlink() == Path("1")


def test_nothing_is_copied_through_a_link_that_takes_a_folders_place(tmp_path: Path) -> None:
    """A background command may do that between the look at the workspace and the copy of it."""
    work, kept, secret = tmp_path / "work", tmp_path / "kept", tmp_path / "keys"
    for folder in (work / "d", secret):
        folder.mkdir(parents=True)
    (secret / "k").write_text("a key")
    (work / "d" / "k").write_text("mine")
    base = save_base(work, kept, "")
    (work / "d" / "k").unlink()
    (work / "d").rmdir()
    (work / "d").symlink_to(secret)
    with contextlib.suppress(ToolError):
        restore_tree(base, kept, (work, tmp_path / "copy"), {"d/k"}, set())
    assert not list((tmp_path / "copy").rglob("k"))
    with contextlib.suppress(ToolError):
        restore_tree(TreeBase({"d/k": "stat"}, {}), kept, (work, tmp_path / "other"), set(), set())
    assert not list((tmp_path / "other").rglob("k"))
    assert read_old_text(kept, "d/k") == "mine"
