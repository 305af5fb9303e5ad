"""The calls of other agents' sessions, read as calls of our tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whet.store.calls import MinedSession, StoredCall
from whet.warm.foreign_calls import convert_call


def convert(source: str, name: str, arguments: Any) -> tuple[str, Any]:
    session = MinedSession(1, "s", source, "m", "/code/proj", "2026-11-21", 40)
    call = StoredCall(
        3, 2, 1, 1, name, arguments if isinstance(arguments, str) else json.dumps(arguments), "ok"
    )
    converted = convert_call(call, session)
    text = converted.arguments
    return converted.name, text if text == arguments else json.loads(text)


@pytest.mark.parametrize(
    ("source", "name", "given", "wanted"),
    [
        ("claude-code", "Bash", {"command": "ls", "description": "x"}, ("terminal", {"command": "ls"})),
        ("codex", "shell", {"command": ["bash", "-lc", "ls | wc"]}, ("terminal", {"command": "ls | wc"})),
        ("codex", "shell", {"command": ["cat", "a b"]}, ("terminal", {"command": "cat 'a b'"})),
        (
            "codex",
            "exec_command",
            {"cmd": "ls", "workdir": "x"},
            ("terminal", {"command": "ls", "workdir": "x"}),
        ),
        ("claude-code", "Read", {"file_path": "/code/proj/a.py"}, ("read_file", {"path": "a.py"})),
        (
            "opencode",
            "read",
            {"filePath": "/etc/hosts", "offset": 5},
            ("read_file", {"path": "/etc/hosts", "offset": 5}),
        ),
        (
            "pi",
            "edit",
            {"path": "a", "oldText": "1", "newText": "2"},
            ("patch", {"path": "a", "old_string": "1", "new_string": "2"}),
        ),
        ("claude-code", "Grep", {"pattern": "x", "-n": True}, ("search_files", {"pattern": "x"})),
        (
            "claude-code",
            "Glob",
            {"pattern": "*.py"},
            ("search_files", {"pattern": "*.py", "target": "names"}),
        ),
    ],
)
def test_a_call_that_our_tools_can_make_is_read_as_theirs(
    source: str, name: str, given: dict[str, Any], wanted: tuple[str, dict[str, Any]]
) -> None:
    assert convert(source, name, given) == wanted


@pytest.mark.parametrize(
    ("source", "name", "given"),
    [
        ("cli", "Bash", {"command": "ls"}),
        ("claude-code", "Task", {"prompt": "x"}),
        ("claude-code", "Bash", {"command": "ls", "run_in_background": True}),
        ("claude-code", "Read", {"notebook": "x"}),
        ("claude-code", "Bash", "not JSON"),
    ],
)
def test_any_other_call_stays_as_it_is(source: str, name: str, given: Any) -> None:
    assert convert(source, name, given) == (name, given)
