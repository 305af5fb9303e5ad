"""An import that is killed, runs out of room, or reads a database that its program is using."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from benchmarks.hermes_db import BEGAN_S, HermesDb, fill

from tests.cli.running import WHET, run
from whet.contract.errors import ConfigError
from whet.moving.copies import open_copy

PATIENCE_S = 60.0


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def stored(home: Path) -> tuple[int, int, int]:
    """Count sessions, messages, and messages that are indexed."""
    with closing(
        apsw.Connection(f"file:{home / 'state.db'}?mode=ro", flags=apsw.SQLITE_OPEN_READWRITE | 64)
    ) as database:
        database.set_busy_timeout(5_000)
        return tuple(
            database.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in ("sessions", "messages", "messages_fts WHERE rowid % 2 = 0")
        )


def begun(home: Path, process: subprocess.Popen[bytes], sessions: int) -> bool:
    """Wait until more sessions are stored; False where the import ended before, as it may."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if process.poll() is not None:
            return False
        try:
            if stored(home)[0] > sessions:
                return True
        except apsw.Error:
            pass  # not made yet
        threading.Event().wait(0.005)
    raise AssertionError("the import has not begun")


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_and_each_message_comes_once(tmp_path: Path, home: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    total = fill(theirs / "state.db", 600, 12)
    command = [*WHET, "import", "hermes", str(theirs), "--only", "sessions"]
    seen = 0
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if begun(home, process, seen):
            process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        seen = stored(home)[0]
    code, out, err = run(["import", "hermes", str(theirs), "--only", "sessions", "--json"], tmp_path)
    assert (code, err) == (0, "")
    carried = json.loads(out)["sessions"]
    assert carried["new"] + carried["same"] == 600 and carried["same"] >= seen
    assert stored(home) == (600, total, total)


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_and_the_next_run_goes_on(tmp_path: Path, home: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    total = fill(theirs / "state.db", 200, 12)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    command = [*WHET, "import", "hermes", str(theirs), "--only", "sessions"]
    full = subprocess.run(command, preexec_fn=limit, capture_output=True, timeout=PATIENCE_S, check=False)
    assert full.returncode == 1
    assert full.stderr.startswith(b"error: no space is left") and b"Traceback" not in full.stderr
    assert run(["import", "hermes", str(theirs), "--only", "sessions"], tmp_path)[0] == 0
    assert stored(home) == (200, total, total)


def test_a_database_that_is_written_to_all_the_time_is_read_as_it_was(tmp_path: Path) -> None:
    hermes_db = HermesDb(tmp_path / "state.db", wal=True)
    hermes_db.session("first", [user("hello")])
    stop, turns = threading.Event(), 0

    def write() -> None:
        nonlocal turns
        writer = apsw.Connection(str(tmp_path / "state.db"))
        writer.wal_autocheckpoint(0)
        while not stop.is_set():
            turns += 1
            writer.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('first', 'user', ?, ?)",
                (f"more {turns}", BEGAN_S),
            )
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            before = turns
            with open_copy(tmp_path / "state.db") as connection:
                rows = connection.execute("SELECT content FROM messages ORDER BY id").fetchall()
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert [row[0] for row in rows] == ["hello", *(f"more {n}" for n in range(1, len(rows)))]
            assert len(rows) >= before
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        hermes_db.close()
    assert not list(tmp_path.glob("*-copy*"))


@pytest.mark.slow
def test_a_transaction_that_a_crash_left_half_written_is_not_read(tmp_path: Path) -> None:
    source, crashed = tmp_path / "source", tmp_path / "crashed"
    source.mkdir()
    crashed.mkdir()
    hermes_db = HermesDb(source / "state.db")
    hermes_db.session("s", [user(f"old {n} {'x' * 400}") for n in range(400)])
    hermes_db.db.pragma("cache_size", 5)
    hermes_db.db.execute("BEGIN")
    hermes_db.db.execute("UPDATE messages SET content = replace(content, 'old', 'new')")
    for path in source.iterdir():
        (crashed / path.name).write_bytes(path.read_bytes())
    hermes_db.db.execute("ROLLBACK")
    hermes_db.close()
    assert b"new 1 " in (crashed / "state.db").read_bytes(), "half of it is in the file"
    before = {path.name: path.read_bytes() for path in crashed.iterdir()}
    assert len(before) == 2
    with open_copy(crashed / "state.db") as connection:
        rows = connection.execute("SELECT count(*), sum(content LIKE 'old%') FROM messages").fetchall()
    assert rows == [(400, 400)]
    assert {path.name: path.read_bytes() for path in crashed.iterdir()} == before


def test_one_that_another_program_has_locked_is_read(tmp_path: Path) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    hermes_db.session("s", [user("hello")])
    hermes_db.db.execute("BEGIN EXCLUSIVE")
    with open_copy(tmp_path / "state.db") as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchall() == [(1,)]
    hermes_db.close()


def test_one_whose_log_was_not_copied_along_gives_what_it_holds(tmp_path: Path) -> None:
    hermes_db = HermesDb(tmp_path / "state.db", wal=True)
    hermes_db.session("s", [user("in the file")])
    hermes_db.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    hermes_db.session("t", [user("in the log")])
    lone = tmp_path / "copied" / "state.db"
    lone.parent.mkdir()
    lone.write_bytes((tmp_path / "state.db").read_bytes())
    hermes_db.close()
    with open_copy(lone) as connection:
        assert connection.execute("SELECT content FROM messages").fetchall() == [("in the file",)]
    assert [path.name for path in lone.parent.iterdir()] == ["state.db"]


def test_a_copy_that_has_no_room_names_the_place(tmp_path: Path) -> None:
    hermes_db = HermesDb(tmp_path / "state.db", wal=True)
    hermes_db.session("s", [user("x" * 200_000)])
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from whet.moving.copies import open_copy\n"
        "from whet.contract.errors import ConfigError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try:\n"
        "    with open_copy(Path(sys.argv[1])): pass\n"
        "except ConfigError as error: print(error.message, error.hint)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    hermes_db.close()
    assert "can't be copied to" in done.stdout and "TMPDIR" in done.stdout


@pytest.mark.slow
def test_notes_that_are_huge_or_no_text_are_listed(tmp_path: Path, home: Path) -> None:
    memories = tmp_path / "theirs" / "memories"
    memories.mkdir(parents=True)
    (memories / "MEMORY.md").write_text("The server stands in rack 7\n" * 400_000)
    (memories / "USER.md").write_bytes(b"Mara \xff\xfe writes\n")
    code, out, err = run(["import", "hermes", str(memories.parent), "--json"], tmp_path)
    assert (code, err) == (0, "")
    states = {row["what"]: row["how"] for row in json.loads(out)["memory"]}
    assert states == {"MEMORY.md": "left", "USER.md": "left"}
    assert not (home / "memories").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_told_in_a_line(tmp_path: Path) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    hermes_db.close()
    (tmp_path / "state.db").chmod(0)
    with pytest.raises(ConfigError), open_copy(tmp_path / "state.db"):
        pass
