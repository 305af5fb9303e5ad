"""pi's transcripts and opencode's database, in the shapes that the programs themselves wrote."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import invoke
from tests.moving.test_transcripts import lines
from whet.contract.errors import ConfigError
from whet.moving import opencode, pi
from whet.moving.copies import open_copy
from whet.moving.pairing import MISSING

_AT = "2026-11-23T07:31:27.733Z"
_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, title text NOT NULL,
  model text, revert text, time_created integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  data text NOT NULL);
"""


def entry(name: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": name, "parentId": parent, "timestamp": _AT, **more}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def test_pis_newest_branch_is_read_with_what_its_calls_came_to(tmp_path: Path) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "make"}}
    usage = {
        "input": 4,
        "output": 13,
        "cacheRead": 90,
        "cacheWrite": 6,
        "totalTokens": 113,
        "cost": {"total": 0},
    }
    answer = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call], "model": "m"}
    came = [{"type": "text", "text": "no\n\nCommand exited with code 2"}]
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "isError": True, "content": came}
    path = lines(
        tmp_path / "agent" / "sessions" / "--w--" / "2026_s-1.jsonl",
        {"type": "session", "version": 3, "id": "s-1", "timestamp": _AT, "cwd": "/w"},
        {"type": "model_change", "id": "a", "parentId": None, "timestamp": _AT, "modelId": "m"},
        entry("b", "a", message=user("left behind")),
        entry("c", "b", message={"role": "assistant", "content": [{"type": "text", "text": "gone"}]}),
        entry("d", "a", message=user("why does it fail? \ud83d")),
        entry("e", "d", message={**answer, "provider": "p", "usage": usage}),
        "{torn",
        entry("f", "e", message=result),
        {"type": "compaction", "id": "g", "parentId": "f", "timestamp": _AT, "summary": "So far.",
         "firstKeptEntryId": "h"},
        entry("h", "g", message={"role": "assistant", "content": [{"type": "text", "text": "Done."}]}),
    )  # fmt: skip
    assert pi.files(tmp_path) == [path]
    past, bad = pi.read(path)
    assert past is not None and bad == 1
    rows = [(row.message.role, row.message.text) for row in past.messages]
    assert ("user", "left behind") not in rows and ("assistant", "gone") not in rows
    assert rows[0] == ("user", "why does it fail? \ufffd") and rows[-1] == ("assistant", "Done.")
    assert (past.header.id, past.header.workspace, past.header.provider) == ("s-1", "/w", "p")
    ran = past.messages[2]
    assert (ran.error_kind, ran.exit_code, ran.message.tool_name) == ("exit", 2, "bash")
    used = past.messages[1].usage
    assert used is not None and (used.prompt_tokens, used.output_tokens) == (100, 13)
    assert past.live is not None and len(past.live) < len(past.messages)


def opened(folder: Path, rows: dict[str, list[tuple[Any, ...]]], drop: Sequence[str] = ()) -> Path:
    """Write a database; `drop` are the columns that its version lacks."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "opencode.db")) as connection:
        connection.executescript(_SCHEMA)
        for table, values in rows.items():
            for value in values:
                marks = ", ".join("?" * len(value))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", value)
        for column in drop:
            table, _, name = column.partition(".")
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        connection.commit()
    return folder


def test_opencodes_sessions_come_with_their_calls_and_without_what_was_reverted(tmp_path: Path) -> None:
    def part(name: str, message: str, **data: Any) -> tuple[Any, ...]:
        return (name, message, "s1", json.dumps(data))

    def tool(name: str, **state: Any) -> dict[str, Any]:
        return {
            "type": "tool",
            "callID": name,
            "tool": "bash",
            "state": {"input": {"command": "make"}, **state},
        }

    tokens = {"input": 5, "output": 7, "reasoning": 1, "cache": {"read": 90, "write": 5}}
    spoke = {"role": "assistant", "modelID": "m", "providerID": "p", "tokens": tokens}
    model = json.dumps({"id": "m", "providerID": "p"})
    folder = opened(
        tmp_path / "opencode",
        {
            "session": [
                ("s1", None, "/w", "Mend it", model, json.dumps({"messageID": "m3"}), 1),
                ("s2", "s1", "/w", "Child session - 2026", model, None, 2),
            ],
            "message": [
                ("m1", "s1", 1000, json.dumps({"role": "user"})),
                ("m2", "s1", 2000, json.dumps(spoke)),
                ("m3", "s1", 3000, json.dumps({"role": "user"})),
                ("m4", "s2", 3000, json.dumps({"role": "user"})),
            ],
            "part": [
                part("p1", "m1", type="text", text="why does it fail?"),
                part("p2", "m1", type="text", text="<file>", synthetic=True),
                part("p3", "m2", type="step-start"),
                part("p4", "m2", type="text", text="I look."),
                part("p5", "m2", **tool("c1", status="completed", output="no", metadata={"exit": 2})),
                part("p6", "m2", **tool("c2", status="error", error="it was aborted")),
                part("p7", "m3", type="text", text="taken back"),
                part("p8", "m4", type="text", text="look around"),
            ],
        },
    )
    with open_copy(opencode.database(folder)) as connection:
        first, child = list(opencode.OpencodeDatabase(connection).sessions())
    assert [row.message.role for row in first.messages] == ["user", "assistant", "tool", "tool"]
    assert first.messages[0].message.text == "why does it fail?"
    assert [(row.error_kind, row.exit_code) for row in first.messages[2:]] == [("exit", 2), ("failed", None)]
    used = first.messages[1].usage
    assert used is not None and (used.prompt_tokens, used.output_tokens, used.reasoning_tokens) == (100, 8, 1)
    assert (first.header.title, first.header.provider) == ("Mend it", "p")
    assert (child.header.title, child.header.parent_session_id) == ("look around", "s1")


def test_both_are_taken_over_by_their_commands(tmp_path: Path) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {
        "session": [("s1", None, "/w", "Mend it", None, None, 1)],
        "message": [("m1", "s1", 1000, json.dumps({"role": "user"}))],
        "part": [("p1", "m1", "s1", json.dumps({"type": "text", "text": "hello"}))],
    }
    theirs = opened(tmp_path / "opencode", rows)
    lines(
        tmp_path / "pi" / "agent" / "sessions" / "2026_s-2.jsonl",
        {"type": "session", "version": 3, "id": "s-2", "timestamp": _AT, "cwd": "/w"},
        entry("a", None, message=user("hello")),
    )
    for program, folder in (("opencode", theirs), ("pi", tmp_path / "pi")):
        for state in ("1 new", "1 here already"):
            done = invoke("import", program, str(folder))
            assert done.exit_code == 0 and state in done.output, done.output


def test_opencodes_unfinished_calls_unseen_texts_and_broken_rows(tmp_path: Path) -> None:
    def part(number: int, message: str, **data: Any) -> tuple[Any, ...]:
        return (f"p{number}", message, "s1", json.dumps(data))

    def tool(name: str, status: str) -> dict[str, Any]:
        return {"type": "tool", "callID": name, "tool": "bash", "state": {"status": status, "input": {}}}

    folder = opened(
        tmp_path / "opencode",
        {
            "session": [("s1", None, "/w", "Mend it", "{broken", None, 1)],
            "message": [
                ("m1", "s1", 1, json.dumps({"role": "user"})),
                ("m2", "s1", "odd", b"\xff{"),
                ("m3", "s1", 3, json.dumps({"role": "assistant"})),
            ],
            "part": [
                part(1, "m1", type="text", text="why?"),
                part(2, "m1", type="text", text="not for the model", ignored=True),
                part(3, "m3", **tool("c1", "running")),
                part(4, "m3", **tool("c2", "pending")),
                part(5, "m3", **tool("c3", "completed")),
            ],
        },
    )
    with open_copy(opencode.database(folder)) as connection:
        source = opencode.OpencodeDatabase(connection)
        [session] = list(source.sessions())
    assert [row.message.text for row in session.messages] == ["why?", "", MISSING, MISSING, ""]
    assert [row.message.is_error for row in session.messages[2:]] == [True, True, False]
    assert source.notice() == "left out: 1 unreadable message, 1 unreadable model"


@pytest.mark.parametrize(
    "column",
    ["session.parent_id", "session.directory", "session.title", "session.model", "session.revert",
     "session.time_created", "message.time_created"],
)  # fmt: skip
def test_opencodes_database_is_read_without_each_optional_column(tmp_path: Path, column: str) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {
        "session": [("s1", None, "/w", "Mend it", None, None, 1)],
        "message": [("m1", "s1", 1000, json.dumps({"role": "user"}))],
        "part": [("p1", "m1", "s1", json.dumps({"type": "text", "text": "hello"}))],
    }
    done = invoke("import", "opencode", str(opened(tmp_path / "opencode", rows, (column,))))
    assert done.exit_code == 0 and "1 new" in done.output and f"has no {column}" in done.output, done.output


def test_a_database_of_another_program_is_named(tmp_path: Path) -> None:
    folder = opened(tmp_path / "opencode", {}, ("part.data",))
    error = invoke("import", "opencode", str(folder)).exception
    assert isinstance(error, ConfigError)
    assert str(error) == "it is not a database of opencode: part has no data"
