"""The home: no space, no permission, broken files, files from the future. One line each, nothing lost."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.stories.program import Program, assert_requests_are_sound, does, said, use
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

NOBODY = 65534


@pytest.fixture
def server():
    with PracticeServer(script=[ScriptedReply("fine")] * 20) as server:
        yield server


@pytest.mark.slow
def test_a_full_disk_ends_the_turn_and_everything_before_is_there(tmp_path, server):
    program = Program(tmp_path, server)
    assert program.ask("remember the blue door").code == 0
    with closing(sqlite3.connect(program.home / "state.db")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a journal that is there is written over first
    used = max(path.stat().st_size for path in program.home.glob("state.db*"))
    program.limits = {"largest_file": used + 20_000}
    server.install([does(use("read_file", path=f"big{n}.txt")) for n in range(16)])
    for n in range(16):
        text = "".join(f"{random.Random(line * 16 + n).randbytes(30).hex()}\n" for line in range(1_000))
        (program.work / f"big{n}.txt").write_text(text)
    done = program.ask("read the big file", "--continue")
    done.assert_error("no space is left", "free some disk space")
    program.limits = {}
    server.install([ScriptedReply("here again")])
    done = program.ask("what colour?", "--continue")
    assert (done.code, done.row["text"]) == (0, "here again"), done
    assert "remember the blue door" in said(server.requests[-1])[0][1]
    assert_requests_are_sound(server)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mount"), reason="only root can mount a small disk")
def test_a_really_full_disk_too(tmp_path, server):
    program = Program(tmp_path, server)
    program.home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", program.home]
    if subprocess.run(mount, timeout=30).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert program.ask("remember the blue door").code == 0
        filler = program.home / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        program.ask("what colour?", "--continue").assert_error("space")
        filler.unlink()
        assert program.ask("what colour?", "--continue").code == 0
        assert "remember the blue door" in said(server.requests[-1])[0][1]
        assert_requests_are_sound(server)
    finally:
        subprocess.run(["umount", "-l", program.home], check=True, timeout=30)


@pytest.mark.parametrize("used", [False, True])
def test_a_read_only_home_is_named(server, used):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        program = Program(root, server)
        program.home.mkdir()
        if used:
            assert program.ask("hello").code == 0
        for path in (*program.home.rglob("*"), program.home):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if os.getuid() == 0:
            program.limits = {"user": NOBODY}
        (root / "runs").mkdir(exist_ok=True)
        (root / "runs").chmod(0o777)
        count = server.count
        done = program.ask("hello", "--continue" if used else "--private")
        program.home.chmod(0o755)
    done.assert_error(str(program.home))
    assert server.count == count, "nothing is asked that could not be stored"


def leave_log(home: Path, *names: str) -> None:
    """Rename the session in the database's log, as a program leaves it that was killed, with these files."""
    copies = home.parent / "copies"
    copies.mkdir()
    with closing(sqlite3.connect(home / "state.db")) as store:
        store.execute("PRAGMA wal_autocheckpoint = 0")
        store.execute("UPDATE sessions SET title = 'the name in the log'")
        store.commit()
        for name in names:
            shutil.copyfile(home / name, copies / name)
    for name in names:
        shutil.copyfile(copies / name, home / name)


@contextmanager
def read_only(home: Path) -> Generator[None]:
    """Take the right to write in the home away; of root by mounting it once more."""
    if os.getuid() != 0:
        for path in (*home.rglob("*"), home):
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            yield
        finally:
            home.chmod(0o700)
        return
    if not shutil.which("mount") or subprocess.run(["mount", "--bind", home, home], timeout=30).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True, timeout=30)
        yield
    finally:
        subprocess.run(["umount", "-l", home], check=True, timeout=30)


READS = (
    ("sessions", "list"), ("sessions", "search", "blue"), ("sessions", "stats"), ("agents",), ("cost",),
    ("diff",), ("approvals", "list"), ("review", "list"), ("cron", "list"), ("goal", "list"),
    ("warm", "list"), ("memory", "show"), ("skills", "list"), ("config", "list"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "files", [(), ("state.db", "state.db-wal"), ("state.db", "state.db-wal", "state.db-shm")]
)
def test_commands_that_only_read_work_in_a_read_only_home(tmp_path, server, files):
    program = Program(tmp_path, server)
    assert program.ask("remember the blue door").code == 0
    reads = (*READS, ("sessions", "show", program.sessions()[0]["id"]))
    writable = {command: program.run(*command) for command in reads}
    assert not [(each.code, each.err) for each in writable.values() if each.code]
    if files:
        leave_log(program.home, *files)
    before = {path.name: path.read_bytes() for path in program.home.glob("state.db*")}
    with read_only(program.home):
        done = {command: program.run(*command) for command in reads}
        changed = program.run("sessions", "rename", reads[-1][-1], "another name")
    ends = {command: (each.code, each.err) for command, each in done.items()}
    assert ends == {command: (each.code, each.err) for command, each in writable.items()}
    assert ("the name in the log" in done["sessions", "list"].out) is bool(files)
    assert "remember the blue door" in done[reads[-1]].out
    assert "blue" in done["sessions", "search", "blue"].out
    changed.assert_error("state.db")
    assert {path.name: path.read_bytes() for path in program.home.glob("state.db*")} == before


def test_a_home_that_is_a_file_is_named(tmp_path, server):
    program = Program(tmp_path, server)
    program.home.write_text("not a folder")
    program.ask("hello").assert_error(str(program.home))


def test_a_new_home_is_its_owners_alone(tmp_path, server):
    program = Program(tmp_path, server)
    assert program.ask("hello").code == 0
    for folder in (program.home, program.home / "logs"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder


@pytest.mark.parametrize(
    "bytes_", [b"this is no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_corrupt_database_is_named_and_left_alone(tmp_path, server, bytes_):
    program = Program(tmp_path, server)
    program.home.mkdir(mode=0o700)
    database = program.home / "state.db"
    database.write_bytes(bytes_)
    program.ask("hello").assert_error("state.db", "damaged")
    assert database.read_bytes() == bytes_
    assert server.count == 0


def test_damage_inside_a_used_database_is_named(tmp_path, server):
    program = Program(tmp_path, server)
    assert program.ask("hello " * 2000).code == 0
    database = program.home / "state.db"
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    program.ask("hello", "--continue").assert_error("state.db")


def test_a_newer_database_is_refused_untouched(tmp_path, server):
    program = Program(tmp_path, server)
    assert program.ask("hello").code == 0
    database = program.home / "state.db"
    with sqlite3.connect(database) as connection:
        version = connection.execute("pragma user_version").fetchone()[0]
        connection.execute(f"pragma user_version = {version + 7}")
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    before = database.read_bytes()
    program.ask("hello").assert_error("newer", "upgrade")
    assert database.read_bytes() == before


CONFIGS = {
    "model:\n  provider: practice\n  format: chat\n": ("config.yaml", "line 3", "anthropic_messages"),
    "model:\n  provider: [practice\n": ("config.yaml", "line"),
    "model:\n\tprovider: practice\n": ("config.yaml", "line 2"),
    "modell:\n  provider: practice\n": ("modell", "did you mean", "model"),
    "agent:\n  max_step: 3\n": ("max_step", "max_steps", "line 2"),
    "agent:\n  max_steps: many\n": ("max_steps", "many", "line 2"),
    "agent:\n  max_steps: 0\n": ("max_steps", "line 2"),
    "approval:\n  mode: sometimes\n": ("sometimes", "auto", "deny", "line 2"),
    "- a list\n": ("config.yaml",),
    "model:\n  api_key: sk-abcdefghijklmnop1234\n": ("api_key", ".env"),
    "\x00\x01\x02": ("config.yaml",),
}


@pytest.mark.slow
def test_a_broken_config_is_named_with_line_and_what_is_allowed(tmp_path, server):
    program = Program(tmp_path, server)
    program.home.mkdir(mode=0o700)
    for text, words in CONFIGS.items():
        (program.home / "config.yaml").write_text(text)
        done = program.ask("hello")
        done.assert_error(*words)
        assert "sk-abcdefghijklmnop1234" not in done.err + done.out
        assert (done.row["session_id"], done.row["end_reason"]) == ("", "failed")
    (program.home / "config.yaml").write_bytes(b"model:\n  provider: caf\xe9\n")
    program.ask("hello").assert_error("config.yaml")
    assert server.count == 0
    (program.home / "config.yaml").unlink()
    assert program.ask("hello").code == 0


@pytest.mark.slow
def test_a_missing_key_says_which_variable_to_set(tmp_path):
    program = Program(tmp_path)
    program.ask("hi", "--provider", "anthropic").assert_error("ANTHROPIC_API_KEY", ".env")
    program.ask("hi", "--provider", "openai", "--api-key-env", "MY_KEY").assert_error("MY_KEY")
    program.ask("hi", "--provider", "antropic").assert_error("antropic", "anthropic")


@pytest.mark.parametrize(
    "count", [pytest.param(8, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.soak)]
)
def test_one_shots_that_start_at_once_on_a_new_home_all_answer(tmp_path, count):
    with PracticeServer(responder=lambda request: ScriptedReply("here")) as server:
        program = Program(tmp_path, server)
        running = [program.start_asking(f"hello {number}") for number in range(count)]
        ends = [each.done() for each in running]
        assert [(end.code, end.err) for end in ends] == [(0, "")] * count
