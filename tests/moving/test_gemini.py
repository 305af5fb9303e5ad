"""Gemini CLI's chats, in the shapes that version 0.61 wrote: called, ended, resumed, rewound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.running import invoke
from tests.moving.test_transcripts import PIXEL, lines
from whet.contract.messages import ImagePart, TextPart
from whet.moving import gemini

_AT = "2026-11-29T09:30:05.457Z"
_LATER = "2026-11-29T09:30:23.038Z"
_RESPONSE = {"id": "sh_0", "name": "run_shell_command", "response": {"output": "Output: kettle"}}
_ARGS = {"command": "echo kettle"}
_TOKENS = {"input": 10, "output": 3, "cached": 4, "thoughts": 2, "tool": 0, "total": 15}


def user(name: str, *parts: dict[str, Any], at: str = _AT) -> dict[str, Any]:
    return {"id": name, "timestamp": at, "type": "user", "content": list(parts)}


def answer(name: str, content: Any, at: str = _AT, **more: Any) -> dict[str, Any]:
    row = {"id": name, "timestamp": at, "type": "gemini", "content": content, "thoughts": []}
    return {**row, "tokens": _TOKENS, "model": "gemini-2.5-flash", **more}


def write_chat(home: Path, *rows: Any, name: str = "session-2026-11-29T09-30-5e21a72d") -> Path:
    project = home / "tmp" / "work"
    header = {"sessionId": "5e21a72d-092b", "projectHash": "13a1", "startTime": _AT, "kind": "main"}
    context = user("ctx", {"text": "<session_context>\nThis is the Gemini CLI.\n</session_context>"})
    path = lines(project / "chats" / f"{name}.jsonl", header, {"$set": {"messages": [context]}}, *rows)
    (project / ".project_root").write_text("/home/me/work")
    return path


def first_run() -> list[Any]:
    call = {"id": "sh_0", "name": "run_shell_command", "args": _ARGS, "status": "success"}
    return [
        user("u1", {"text": "boil the kettle"}),
        {"$set": {"lastUpdated": _AT}},
        answer("a1", ""),
        answer("a1", "", toolCalls=[{**call, "result": [{"functionResponse": _RESPONSE}]}]),
        user("r1", {"functionResponse": _RESPONSE}),
        answer("a2", "done"),
    ]


def resumed() -> list[Any]:
    """A resumed chat: the whole list again, as the API has it."""
    call = {"id": "sh_0", "name": "run_shell_command", "args": _ARGS}
    again = [
        user("u1", {"text": "boil the kettle"}, at=_LATER),
        answer("a1", [{"functionCall": call}], at=_LATER),
        user("a1_response", {"functionResponse": _RESPONSE}, at=_LATER),
        user("r1", {"functionResponse": _RESPONSE}, at=_LATER),
        answer("a2", [{"text": "done"}], at=_LATER),
    ]
    return [
        {"$set": {"messages": again}},
        user("u2", {"text": "once more"}, at=_LATER),
        answer("a3", "twice", at=_LATER),
    ]


def said(path: Path) -> list[tuple[str, str]]:
    past, bad = gemini.read(path)
    assert past is not None and not bad
    return [(row.message.role, row.message.text) for row in past.messages]


def test_a_chat_is_read_with_its_calls_once_and_without_what_the_program_added(tmp_path: Path) -> None:
    path = write_chat(tmp_path, *first_run())
    expected = [
        ("user", "boil the kettle"),
        ("assistant", ""),
        ("tool", "Output: kettle"),
        ("assistant", "done"),
    ]
    assert gemini.files(tmp_path) == [path] and said(path) == expected
    past, _ = gemini.read(path)
    assert past is not None
    about = past.header
    assert (about.id, about.workspace, about.title) == ("5e21a72d-092b", "/home/me/work", "boil the kettle")
    assert (about.provider, about.model) == ("google", "gemini-2.5-flash")
    call, used = past.messages[1].message.tool_calls[0], past.messages[1].usage
    assert (call.name, json.loads(call.arguments)) == ("run_shell_command", _ARGS)
    assert used is not None and (used.prompt_tokens, used.output_tokens) == (10, 5)


def test_a_resumed_chat_keeps_its_first_messages_and_each_result_once(tmp_path: Path) -> None:
    path = write_chat(tmp_path, *first_run(), *resumed())
    assert said(path)[-2:] == [("user", "once more"), ("assistant", "twice")]
    past, _ = gemini.read(path)
    assert past is not None and len(past.messages) == 6
    assert past.messages[0].at_ms < past.messages[-1].at_ms and past.messages[1].usage is not None


def test_a_chat_that_was_resumed_by_another_file_is_read_from_the_list_alone(tmp_path: Path) -> None:
    assert [role for role, _ in said(write_chat(tmp_path, *resumed()))] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


def test_what_was_rewound_is_left_out(tmp_path: Path) -> None:
    path = write_chat(tmp_path, *first_run(), {"$rewindTo": "a1"}, user("u9", {"text": "tea"}))
    assert said(path) == [("user", "boil the kettle"), ("user", "tea")]


def test_helpers_failures_and_odd_lines(tmp_path: Path) -> None:
    failed = {"id": "x", "name": "read_file", "args": {}, "status": "error"}
    response = {"id": "x", "name": "read_file", "response": {"error": "no such file"}}
    odd: list[Any] = [7, {"$set": 3}, {"$set": {"messages": "x"}}, {"id": 3}, "{torn", {"$rewindTo": 4}]
    rows = [user("u1", {"text": "look"}), answer("a", 7, tokens="x", toolCalls=[{**failed, "result": [7]}])]
    rows += [user("r", {"functionResponse": response}, {"inlineData": {}})]
    past, bad = gemini.read(write_chat(tmp_path, *odd, *rows))
    assert past is not None and bad == 2
    assert (past.messages[2].message.text, past.messages[2].error_kind != "") == ("no such file", True)
    helper = {"sessionId": "h", "kind": "subagent"}
    assert gemini.read(write_chat(tmp_path / "other", helper, *first_run()))[0] is None


def test_a_chat_of_an_earlier_version_is_one_object(tmp_path: Path) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    call = {"id": "sh_0", "name": "run_shell_command", "args": _ARGS, "status": "success"}
    rows: list[Any] = [
        user("u1", {"text": "boil the kettle"}, picture),
        7,
        answer("a1", "on it", toolCalls=[{**call, "result": [{"functionResponse": _RESPONSE}]}]),
    ]
    header = {"sessionId": "old-1", "projectHash": "13a1", "startTime": _AT}
    folder = tmp_path / "tmp" / "work" / "chats"
    folder.mkdir(parents=True)
    path, torn, resumed_path = (folder / f"session-{name}.json" for name in ("1", "2", "3"))
    path.write_text(json.dumps({**header, "messages": rows}, indent=2))
    torn.write_text('{"sessionId": "x", "messages": [')
    resumed_path.write_text(json.dumps(header))
    later = lines(resumed_path.with_suffix(".jsonl"), header)
    assert gemini.files(tmp_path) == [path, torn, later]
    past, bad = gemini.read(path)
    assert past is not None and (past.header.id, bad) == ("old-1", 1)
    assert [row.message.text for row in past.messages] == ["boil the kettle", "on it", "Output: kettle"]
    assert past.messages[0].message.content == (TextPart("boil the kettle"), ImagePart("image/png", PIXEL))
    assert gemini.read(torn) == (None, 1)


def test_the_command_takes_the_chats_over(tmp_path: Path, home: Path) -> None:
    write_chat(tmp_path, *first_run())
    done = invoke("import", "gemini", str(tmp_path), "--json")
    assert done.exit_code == 0 and json.loads(done.output)["sessions"]["new"] == 1, done.output
