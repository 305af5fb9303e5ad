"""Where `whet import` looks without a path, and what it says if there is nothing to import."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import invoke
from tests.moving.test_transcripts import item, lines, said, text
from whet.contract.errors import NotFound

_SESSION = {"type": "session", "version": 3, "id": "s", "cwd": "/w"}
_USER = {"role": "user", "content": "hello"}
_PI = [_SESSION, {"type": "message", "id": "a", "parentId": None, "message": _USER}]


@pytest.mark.parametrize(
    ("program", "variable", "path", "rows"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "projects/-w/s.jsonl", [said("user", "hello")]),
        ("codex", "CODEX_HOME", "sessions/rollout-1.jsonl", [text("user", "hello")]),
        (
            "gemini",
            "GEMINI_CLI_HOME",
            ".gemini/tmp/w/chats/session-1.jsonl",
            [{"id": "u", "type": "user", "content": "hello"}],
        ),
        ("pi", "PI_CODING_AGENT_DIR", "sessions/-w/s.jsonl", _PI),
        ("openclaw", "OPENCLAW_STATE_DIR", "agents/main/sessions/s.jsonl", _PI),
    ],
)
def test_a_programs_variable_names_its_folder(
    tmp_path: Path, program: str, variable: str, path: str, rows: list[Any]
) -> None:
    lines(tmp_path / path, *rows)
    done = invoke("import", program, "--json", env={variable: str(tmp_path)})
    assert done.exit_code == 0 and json.loads(done.stdout)["sessions"]["new"] == 1, done.output


@pytest.mark.parametrize("program", ["claude-code", "codex", "pi"])
def test_a_transcript_of_another_program_is_an_error(tmp_path: Path, program: str) -> None:
    path = lines(tmp_path / "s.jsonl", {"kind": "foreign", "words": "hello"}, item({"type": "unknown"}))
    done = invoke("import", program, str(path))
    assert isinstance(done.exception, NotFound) and done.exit_code == 1
    assert str(done.exception) == f"nothing to import was found in {path}"
    assert "left out: 1 file without a message of a person" in done.output


def test_an_import_whose_only_file_is_unreadable_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tmp" / "w" / "chats" / "session-1.jsonl"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    done = invoke("import", "gemini", str(tmp_path), "--json")
    assert isinstance(done.exception, NotFound)
    assert json.loads(done.stdout)["unreadable_files"] == {str(path): "it is not a plain file"}


def test_an_empty_database_is_an_error(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.executescript(
            "CREATE TABLE session (id); CREATE TABLE message (id, session_id, data);"
            "CREATE TABLE part (id, message_id, data)"
        )
    assert isinstance(invoke("import", "opencode", str(tmp_path)).exception, NotFound)
