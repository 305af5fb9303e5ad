"""OpenClaw's state folder, in the shapes that version 2026.9.6 wrote."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import invoke
from tests.moving.test_transcripts import lines
from whet.moving.openclaw import OpenClawHome
from whet.store.bulk import PastSession

_AT = "2026-11-29T12:24:50.677Z"
_USAGE = {"input": 127, "output": 6, "cacheRead": 100, "cacheWrite": 0, "cost": {"total": 0.1}}
_SCHEMA = """
CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, label TEXT, display_name TEXT, spawned_by TEXT);
CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT, created_at INTEGER,
  spawned_by TEXT, display_name TEXT);
CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, created_at INTEGER,
  event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT);
"""
_USER = """# USER.md - User Model

Use one directive per entry:

## Directives

Replace the example below with a real directive before you save this file.

<!-- observed: 2026-11-29 | status: active -->

- Prefer metric units in every answer.

<!-- observed: 2026-11-01 | status: superseded -->

- Prefer imperial units.

<!-- observed: YYYY-MM-DD | status: active -->

- Prefer ...

## Related
"""


_OLDER_USER = """# USER.md - About Your Human

_Learn about the person you're helping._

- **Name:** Ann
- **What to call them:**
- **Pronouns:** _(optional)_

## Context

_(What do they care about?)_

---

- [Agent workspace](/concepts/agent-workspace)
"""


def entry(name: str, parent: str | None, kind: str = "message", **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, "parentId": parent, "timestamp": _AT, **more}


def header(session_id: str) -> dict[str, Any]:
    return {"type": "session", "version": 4, "id": session_id, "timestamp": _AT, "cwd": "/home/me/claw"}


def user(name: str, parent: str | None, text: str) -> dict[str, Any]:
    return entry(
        name, parent, message={"role": "user", "content": text, "__openclaw": {"senderIsOwner": True}}
    )


def answer(name: str, parent: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks), "provider": "p", "model": "m", "usage": _USAGE}
    return entry(name, parent, message=message)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def run_log() -> list[dict[str, Any]]:
    """A turn whose command printed much and failed."""
    call = {"type": "toolCall", "id": "call_4", "name": "exec", "arguments": {"command": "make"}}
    printed = "".join(f"line {number} of the log\n" for number in range(400))
    body = {"role": "toolResult", "toolCallId": "call_4", "toolName": "exec", "content": [text(printed)]}
    return [
        user("u1", None, "boil the kettle"),
        answer("a1", "u1", text("I look."), call),
        entry("r1", "a1", message={**body, "details": {"exitCode": 3}, "isError": False}),
        entry("c1", "r1", "custom", customType="openclaw.cache-ttl", data={}),
        answer("a2", "c1", text("It failed.")),
    ]


def pack(event: dict[str, Any]) -> tuple[bytes, int]:
    raw = json.dumps(event).encode()
    done = subprocess.run(["zstd", "-1", "-c"], input=raw, capture_output=True, check=True)
    return done.stdout, len(raw)


def make_home(
    root: Path, sessions: dict[str, list[Any]], *, packed: str = "", helper: str = "", archived: str = ""
) -> OpenClawHome:
    """Write an agent's database; the entry `packed` is compressed."""
    path = root / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_SCHEMA)
        for at, (name, entries) in enumerate(sessions.items()):
            spawned = "agent:main:main" if name == helper else None
            connection.execute("INSERT INTO session_nodes VALUES (?, NULL, NULL, ?)", (f"k:{name}", spawned))
            connection.execute(
                "INSERT INTO session_windows VALUES (?, ?, ?, NULL, NULL)", (name, f"k:{name}", at)
            )
            for seq, event in enumerate([] if name == archived else [header(name), *entries]):
                frame, size = pack(event) if packed and event.get("id") == packed else (None, None)
                words = None if frame else json.dumps(event)
                row = (name, seq, words, 0, frame, size, None)
                connection.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    return OpenClawHome(root)


def told(past: PastSession) -> list[tuple[str, str]]:
    return [(row.message.role, row.message.text[:20]) for row in past.messages]


def test_a_session_is_read_with_its_calls_and_how_they_ended(tmp_path: Path) -> None:
    home = make_home(tmp_path, {"s-1": run_log(), "s-2": run_log()}, helper="s-2")
    (past,) = home.sessions()
    assert told(past) == [
        ("user", "boil the kettle"),
        ("assistant", "I look."),
        ("tool", "line 0 of the log\nli"),
        ("assistant", "It failed."),
    ]
    about = past.header
    assert (about.id, about.source, about.workspace) == ("s-1", "openclaw", "/home/me/claw")
    assert (about.provider, about.model, about.title) == ("p", "m", "boil the kettle")
    assert (past.messages[2].error_kind, past.messages[2].exit_code) == ("exit", 3)
    used = past.messages[1].usage
    assert used is not None and (used.prompt_tokens, used.output_tokens) == (227, 6)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd")
def test_a_compressed_event_is_read_and_without_zstd_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path, {"s-1": run_log()}, packed="r1")
    (past,) = home.sessions()
    assert past.messages[2].message.text.endswith("line 399 of the log\n") and not home.unread.notice()
    monkeypatch.setenv("PATH", str(tmp_path))
    (past,) = home.sessions()
    assert [role for role, _ in told(past)] == ["user", "assistant", "tool", "assistant"]
    assert past.messages[2].error_kind == "interrupted" and "1 compressed" in home.unread.notice()


@pytest.mark.parametrize(
    ("change", "notice"),
    [
        ("session_nodes DROP COLUMN label", "the database has no session_nodes.label"),
        ("session_windows DROP COLUMN created_at", "the database has no session_windows.created_at"),
        (
            "session_nodes RENAME TO gone",
            "the database has no session_nodes.session_key, "
            "session_nodes.label, session_nodes.display_name, session_nodes.spawned_by",
        ),
        ("transcript_events DROP COLUMN event_zstd", ""),
    ],
)
def test_an_optional_column_may_be_missing(tmp_path: Path, change: str, notice: str) -> None:
    home = make_home(tmp_path, {"s-1": run_log()})
    with closing(sqlite3.connect(home.databases[0])) as connection:
        connection.execute(f"ALTER TABLE {change}")
        connection.commit()
    assert home.count() == 1 and [past.header.id for past in home.sessions()] == ["s-1"]
    assert home.unread.notice() == notice


def test_resets_branches_and_archives(tmp_path: Path) -> None:
    fork = [
        *run_log(),
        answer("gone", "c1", text("An abandoned answer.")),
        entry("back", "gone", "leaf", targetId="a2"),
    ]
    reset = [*run_log(), entry("x", "a2", "reset", reason="daily"), user("u2", "x", "good morning")]
    home = make_home(tmp_path, {"s-1": fork, "s-2": reset, "s-3": []}, archived="s-3")
    assert home.count() == 3
    first, second = home.sessions()
    assert told(first)[-1] == ("assistant", "It failed.") and len(first.messages) == 4
    assert [second.messages[at].message.text for at in second.live or ()] == ["good morning"]
    assert "1 sessions in archives" in home.unread.notice()


def test_the_command_takes_sessions_files_and_notes_over(tmp_path: Path, home: Path) -> None:
    root, workspace = tmp_path / "claw", tmp_path / "work"
    make_home(root, {"s-1": run_log()})
    older = [header("s-0"), user("u0", None, "an older version"), "{torn", answer("a0", "lost", text("Yes."))]
    lines(root / "agents" / "main" / "sessions" / "s-0.jsonl", *older)
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Memory\n\n- The staging machine is called ares.\n")
    (workspace / "USER.md").write_text(_USER)
    (workspace / "memory" / "2026-11-29.md").write_text("- Boiled.\n")
    settings = {"agents": {"defaults": {"workspace": str(workspace)}}}
    (root / "openclaw.json").write_text(json.dumps(settings))

    def take() -> dict[str, Any]:
        done = invoke("import", "openclaw", str(root), "--json", "--yes")
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    report = take()
    assert report["sessions"]["new"] == 2 and report["sessions"]["messages"] == 6
    assert report["notice"] == "left out: 1 unreadable events"
    rows = [(row["what"], row["how"]) for row in report["memory"]]
    assert rows == [
        ("MEMORY.md 1: The staging machine is called ares.", "saved"),
        ("USER.md 1: Prefer metric units in every answer.", "saved"),
        ("memory/", "left"),
    ]
    again = take()
    assert (again["sessions"]["new"], again["sessions"]["same"]) == (0, 2)
    assert [row["how"] for row in again["memory"]] == ["kept", "kept", "left"]


def test_an_older_versions_files_and_form_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "main" / "sessions"
    lines(folder / "s-1.jsonl", header("s-1"), *run_log())
    lines(folder / "s-1.trajectory.jsonl", {"traceSchema": "openclaw-trajectory", "type": "session.started"})
    lines(folder / "s-2.jsonl", header("s-2"), *run_log())
    listed = {"agent:main:main": {"sessionId": "s-1"}, "agent:main:subagent:x": {"sessionId": "s-2"}}
    (folder / "sessions.json").write_text(json.dumps(listed))
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "USER.md").write_text(_OLDER_USER)
    home = OpenClawHome(tmp_path)
    assert home.count() == 1 and [past.header.id for past in home.sessions()] == ["s-1"]
    assert [note.text for note in home.notes()[0]] == ["**Name:** Ann"]


def test_another_folder_is_refused(tmp_path: Path, home: Path) -> None:
    done = invoke("import", "openclaw", str(tmp_path))
    assert done.exit_code != 0 and "is not a state folder of OpenClaw" in str(done.exception)
