"""whet rewind, whet diff, /rewind and /diff, with the real program on the practice model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Tty, chatting, flags, run
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


def shell(command: str) -> ScriptedReply:
    return ScriptedReply("", tool_calls=(PracticeCall("terminal", json.dumps({"command": command})),))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "f").write_text("one\n")
    return tmp_path / "work"


@pytest.mark.slow
def test_a_one_shot_is_taken_back_from_the_command_line(work: Path) -> None:
    with PracticeServer(
        script=[shell("echo two >> f; printf x > $'new\\nline'"), ScriptedReply("Done.")]
    ) as server:
        code, out, err = run(["chat", "-q", "change it", "--yes", "--json", *flags(server)], work)
        assert code == 0, err
        session = json.loads(out)["session_id"]
    code, out, _ = run(["rewind"], work)
    assert code == 0 and "1.1" in out and "2 paths changed" in out
    code, out, _ = run(["diff", f"{session}:1"], work)
    assert code == 0 and "\n+two\n" in out and "new\\nline  +1 −0" in out and "2 paths changed, +2 −0" in out
    row = json.loads(run(["diff", session, "--json"], work)[1])["files"][0]
    assert (row["path"], row["added"], row["removed"]) == ("f", 1, 0)
    code, out, _ = run(["rewind", f"{session}:1", "--dry-run", "--json"], work)
    assert code == 0 and json.loads(out)["dry_run"] and (work / "f").read_text() == "one\ntwo\n"
    code, out, _ = run(["rewind", f"{session}:1"], work)
    assert code == 0 and "restored 2 paths" in out and "you had said: change it" in out
    assert [(path.name, path.read_text()) for path in work.iterdir()] == [("f", "one\n")]
    assert json.loads(run(["rewind", session, "--undo", "--json"], work)[1])["conversation"]
    assert (work / "f").read_text() == "one\ntwo\n" and (work / "new\nline").exists()


@pytest.mark.slow
def test_what_the_person_changed_is_listed_and_kept(work: Path) -> None:
    with PracticeServer(script=[shell("echo two > f"), ScriptedReply("Done.")]) as server:
        assert run(["chat", "-q", "go", "--yes", *flags(server)], work)[0] == 0
    (work / "f").write_text("mine\n")
    code, out, _ = run(["rewind", ":1", "--files"], work)
    assert code == 0 and "left as it is: f" in out and "--force sets those back" in out
    assert (work / "f").read_text() == "mine\n"
    assert run(["rewind", ":1", "--files", "--force"], work)[0] == 0
    assert (work / "f").read_text() == "one\n"


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "left"), [("\r", "mine\n"), ("y\r", "one\n")])
def test_what_the_person_changed_is_asked_about_at_a_terminal(work: Path, typed: str, left: str) -> None:
    with PracticeServer(script=[shell("echo two > f"), ScriptedReply("Done.")]) as server:
        assert run(["chat", "-q", "go", "--yes", *flags(server)], work)[0] == 0
    (work / "f").write_text("mine\n")
    with Tty(["rewind", ":1", "--files"], work) as tty:
        assert "f (" in tty.wait_for("lose what others made of them?")
        assert tty.leave(typed) == 0
    assert (work / "f").read_text() == left


@pytest.mark.slow
def test_points_that_are_not_there_are_refused_in_a_line(work: Path) -> None:
    assert run(["rewind", "x:1"], work)[2].startswith("error: there are no sessions yet")
    with PracticeServer(script=[ScriptedReply("Hello.")]) as server:
        assert run(["chat", "-q", "hello", *flags(server)], work)[0] == 0
    _, out, _ = run(["rewind"], work)
    assert f" in {work}\n" in out and out.endswith("No step of this session has changed files.\n")
    code, _, err = run(["rewind", ":7"], work)
    assert code == 1 and "there is no point 7" in err and "Traceback" not in err
    code, _, err = run(["rewind", "--undo"], work)
    assert code == 1 and "nothing in this session is taken back" in err


@pytest.mark.slow
def test_without_a_session_only_this_folders_latest_is_taken_and_named(work: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (empty := other / "empty").mkdir()
    script = [shell("echo two > f"), ScriptedReply("Done."), shell("echo a > a2"), ScriptedReply("Done.")]
    with PracticeServer(script=script) as server:
        for folder in (work, other):
            assert run(["chat", "-q", "go", "--yes", *flags(server)], folder)[0] == 0
    for arguments in (["rewind"], ["rewind", ":1", "--dry-run"], ["diff"], ["rewind", ":1"]):
        code, out, _ = run(arguments, work)
        assert code == 0 and out.startswith("session ") and f" in {work}\n" in out, out
    assert (work / "f").read_text() == "one\n" and (other / "a2").exists()
    session = json.loads(run(["sessions", "list", "--json"], other)[1])["sessions"][0]["id"]
    for arguments in (
        ["rewind", ":1"],
        ["rewind", "--undo"],
        ["diff"],
        ["rate", "good"],
        ["context", "status"],
    ):
        code, _, err = run(arguments, empty)
        assert code == 1 and f"no session began in {empty}" in err and f"{session} of {other}" in err, err
    assert (other / "a2").exists() and f" in {other} " in run(["rate", "bad"], other)[1]
    assert json.loads(run(["rewind", f"{session}:1", "--json"], empty)[1])["workspace"] == str(other)


@pytest.mark.slow
def test_a_deleted_sessions_files_are_forgotten(work: Path, tmp_path: Path) -> None:
    with PracticeServer(script=[shell("echo confidential-words > f"), ScriptedReply("Done.")]) as server:
        code, out, _ = run(["chat", "-q", "go", "--yes", "--json", *flags(server)], work)
    home = Path(json.loads(run(["config", "path", "--json"], work)[1])["home"])
    paths = list(home.glob("rewind/*/files.db"))
    assert code == 0 and len(paths) == 1 and b"confidential-words" in _bytes(paths[0])
    assert run(["sessions", "delete", json.loads(out)["session_id"], "--yes"], work)[0] == 0
    assert b"confidential-words" not in _bytes(paths[0])


def _bytes(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.glob("files.db*"))


@pytest.mark.slow
def test_rewind_and_diff_in_the_chat(work: Path) -> None:
    script = [shell("echo two >> f"), ScriptedReply("One."), ScriptedReply("Two.")]
    with chatting(work, script, "--yes") as (_, tty):
        tty.type("change it\r", "2 steps")
        tty.type("/diff\r", "+two", "1 path changed")
        tty.type("/rewind 1 files\r", "restored 1 path")
        assert (work / "f").read_text() == "one\n"
        tty.type("/rewind undo\r", "restored 1 path")
        tty.type("/rewind 9\r", "there is no point 9")
        tty.type("/undo\r", "its files were not restored")
        assert (work / "f").read_text() == "one\ntwo\n"
        assert tty.leave("\x04") == 0
