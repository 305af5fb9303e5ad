"""Language servers in a running program: in the jail, through the gate, and only where there is one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.app.opened import opened
from tests.lsp.rig import toy
from tests.rewind.running import ANSWER, Consenting, Running, call, running
from whet.config.permission_settings import LspSettings
from whet.rewind.rewinding import Point
from whet.store.sessions import read_prefix
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow
RENAME = {"action": "rename", "path": "a.toy", "symbol": "area", "new_name": "space"}


def lsp(fault: str = "pull", **more: object) -> LspSettings:
    return replace(LspSettings(servers={"toy": toy(fault)}, check_s=60), **more)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.toy").write_text("def area\n")
    (folder / "b.toy").write_text("use area\n")
    yield folder


def results(r: Running) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]


def list_processes(word: str) -> list[str]:
    """Return the command lines that hold a word, as an argument of their own."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"\0{word}\0" in (line := path.read_text()):
                lines.append(line)
    return lines


async def test_the_model_reads_a_new_error_in_the_step_of_the_edit(tmp_path: Path, work: Path) -> None:
    script = [call("patch", path="b.toy", old_string="use", new_string="BAD"), ANSWER]
    async with running(tmp_path, script, lsp=lsp()) as r:
        await r.turn()
        assert "this edit brought 1 new error" in results(r)[0]
        assert "b.toy:1:1 bad: BAD area (E1)" in results(r)[0]


async def test_the_first_file_of_a_language_gets_its_server(tmp_path: Path) -> None:
    script = [
        call("write_file", path="notes.md", content="BAD\n"),
        call("write_file", path="lib/first.toy", content="x BAD\n"),
        ANSWER,
    ]
    async with running(tmp_path, script, lsp=lsp()) as r:
        await r.turn()
        assert "code_symbols" not in r.session.tools, "the tools of a session never change"
        notes, first = results(r)
        assert notes == "created notes.md: 1 line, 4 bytes"
        assert "lib/first.toy:1:3 bad: x BAD (E1)" in first


async def test_a_server_that_was_installed_meanwhile_checks_the_next_edit(tmp_path: Path, work: Path) -> None:
    program = work / ".venv" / "bin" / "pylsp"
    program.parent.mkdir(parents=True)
    edits = [call("write_file", path="m.py", content=f"x = {number}\n") for number in range(2)]
    async with running(tmp_path, [edits[0], ANSWER, edits[1], ANSWER], lsp=LspSettings()) as r:
        await r.turn()
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        await r.turn()
        before, after = results(r)
        assert "not checked" not in before
        assert "this edit was not checked: pylsp has ended" in after


async def test_a_rename_is_shown_as_a_diff_and_can_be_denied_and_rewound(tmp_path: Path, work: Path) -> None:
    script = [call("code_symbols", **RENAME), ANSWER, call("code_symbols", **RENAME), ANSWER]
    person = Consenting("no")
    async with running(tmp_path, script, person=person, lsp=lsp()) as r:
        await r.turn()
        assert (work / "b.toy").read_text() == "use area\n", "the person said no"
        [request] = person.requests
        assert request.tool == "patch" and "+use space" in str(request.arguments["diff"])
        assert [change.path for change in request.changes] == ["a.toy", "b.toy"]
        person.decision = "once"
        await r.turn()
        assert (work / "a.toy").read_text() + (work / "b.toy").read_text() == "def space\nuse space\n"
        await r.rewinding.rewind(Point(2), "files", force=False)
        assert (work / "a.toy").read_text() + (work / "b.toy").read_text() == "def area\nuse area\n"


async def test_a_rename_follows_the_edits_before_it_in_one_reply(tmp_path: Path, work: Path) -> None:
    calls = (
        PracticeCall("write_file", json.dumps({"path": "c.toy", "content": "more area\n"})),
        PracticeCall("code_symbols", json.dumps(RENAME)),
    )
    async with running(tmp_path, [ScriptedReply(tool_calls=calls), ANSWER], lsp=lsp()) as r:
        await r.turn()
        assert (work / "c.toy").read_text() == "more space\n", results(r)


async def test_the_tool_is_only_there_with_a_server_for_the_files(tmp_path: Path, work: Path) -> None:
    for settings, is_there in (
        (lsp(), True),
        (LspSettings(), False),
        (lsp(enabled=False), False),
        (LspSettings(servers={"toy": replace(toy(), command="no-such-program")}), False),
        (LspSettings(servers={"toy": replace(toy(), enabled=False)}), False),
        (LspSettings(servers={"toy": replace(toy(), files=("*.other",))}), False),
    ):
        async with running(tmp_path, [ANSWER], lsp=settings) as r:
            assert ("code_symbols" in r.session.tools) is is_there, settings
            await r.turn()
            session_id = r.session.id
            prefix = r.app.database.read_now(lambda db: read_prefix(db, session_id)[1])  # noqa: B023
            assert ("code_symbols" in prefix) is is_there


async def test_a_server_can_change_nothing_and_sees_no_secret(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_API_TOKEN", "sk-1234567890abcdef")
    (tmp_path / "secret.txt").write_text("a secret beside the workspace")
    os.makedirs(work / ".git" / "hooks")
    script = [call("write_file", path="c.toy", content="fine\n"), ANSWER]
    async with running(tmp_path, script, lsp=lsp("writes")) as r:
        await r.turn()
        assert results(r) == ["created c.toy: 1 line, 5 bytes"]
        assert sorted(path.name for path in work.iterdir()) == [".git", "a.toy", "b.toy", "c.toy"]
        assert (work / "a.toy").read_text() == "def area\n"


async def test_a_program_that_a_repository_brings_runs_in_the_jail_only(tmp_path: Path, work: Path) -> None:
    (work / "m.py").write_text("x = 1\n")
    program = work / ".venv" / "bin" / "pylsp"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho owned > owned; echo owned > ../owned; ls / > owned2; exit 1\n")
    program.chmod(0o755)
    script = [call("write_file", path="m.py", content="x = 2\n"), ANSWER]
    async with running(tmp_path, script, lsp=LspSettings()) as r:
        await r.turn()
        assert "this edit was not checked: pylsp has ended" in results(r)[0]
        assert sorted(path.name for path in work.iterdir()) == [".venv", "a.toy", "b.toy", "m.py"]
        assert not (tmp_path / "owned").exists()


async def test_a_server_behind_a_link_names_the_folder_that_must_be_readable(
    tmp_path: Path, work: Path
) -> None:
    (work / "m.py").write_text("x = 1\n")
    program = tmp_path / "environment" / "bin" / "pylsp"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    (work / ".venv").symlink_to(tmp_path / "environment")
    script = [call("write_file", path="m.py", content="x = 2\n"), ANSWER]
    async with running(tmp_path, script, lsp=LspSettings()) as r:
        await r.turn()
        assert f"add {tmp_path / 'environment'} to the setting sandbox.read" in results(r)[0]


async def test_the_memory_of_a_server_is_bounded(tmp_path: Path, work: Path) -> None:
    script = [call("write_file", path="c.toy", content="BAD\n"), ANSWER]
    async with running(tmp_path, script, lsp=lsp("memory", server_memory_mb=300)) as r:
        await r.turn()
        assert "this edit was not checked" in results(r)[0] and "MemoryError" in results(r)[0]


async def test_without_a_sandbox_no_server_is_offered(work: Path) -> None:
    with PracticeServer() as server:
        for mode, is_there in (("off", False), ("auto", True)):
            settings = {
                "model.provider": "practice",
                "model.base_url": server.base_url,
                "model.model": "practice-echo",
                "sandbox.mode": mode,
                "lsp.enabled": True,
                "lsp.servers": msgspec.json.encode({"toy": toy()}).decode(),
            }
            async with opened(settings, work) as app:
                assert ("code_symbols" in (await app.new_session()).tools) is is_there


async def test_a_helper_s_server_ends_with_the_helper(tmp_path: Path, work: Path) -> None:
    script = [
        call("delegate_task", task="Write c.toy"),
        call("write_file", path="c.toy", content="BAD\n"),
        ScriptedReply("Written."),
        ANSWER,
    ]
    mark = f"mark-{tmp_path.parent.name}-{tmp_path.name}"
    marked = replace(toy(), args=(*toy().args, mark))
    async with running(tmp_path, script, lsp=LspSettings(servers={"toy": marked}, check_s=60)) as r:
        await r.turn()
        assert (work / "c.toy").read_text() == "BAD\n", results(r)
        assert list_processes(mark) == []
