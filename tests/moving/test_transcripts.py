"""Claude Code's and Codex's transcripts, read line by line into the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whet.moving import claude_code, codex
from whet.moving.results import Ending, ending_of


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def said(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    base = {"type": kind, "sessionId": "s-1", "cwd": "/home/u/shop", "timestamp": "2026-03-01T10:00:00.000Z"}
    return base | {"message": message} | more


def test_claude_code_blocks_become_messages(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90}
    path = lines(
        tmp_path / "projects" / "-home-u-shop" / "s-1.jsonl",
        {"type": "summary", "summary": "Mend the build"},
        said("user", "why does it fail?"),
        said("user", "caveat", isMeta=True),
        said(
            "assistant", [{"type": "thinking", "thinking": "hm"}], message={"id": "m1", "model": "claude-x"}
        ),
        said("assistant", [{"type": "text", "text": "I look."}], message={"id": "m1", "usage": usage}),
        said(
            "assistant",
            [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}],
            message={"id": "m1"},
        ),
        said(
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": "Exit code 2\nno rule",
                    "is_error": True,
                }
            ],
        ),
        said("assistant", [{"type": "text", "text": "aside"}], isSidechain=True),
        "{ cut",
        said("assistant", [{"type": "text", "text": "The rule is missing."}], message={"id": "m2"}),
        said("user", [{"type": "text", "text": "thanks"}]),
    )
    lines(path.with_name("agent-7.jsonl"), said("user", "a helper's"))
    assert claude_code.files(tmp_path) == [path]
    past, bad = claude_code.read(path)
    assert past is not None
    assert bad == 1
    assert [row.message.role for row in past.messages] == ["user", "assistant", "tool", "assistant", "user"]
    first = past.messages[1].message
    assert (first.text, first.reasoning) == ("I look.", "hm")
    assert first.tool_calls[0].arguments == '{"command":"make"}'
    assert (past.messages[2].error_kind, past.messages[2].exit_code) == ("exit", 2)
    assert past.messages[2].message.tool_name == "Bash"
    assert (past.about.id, past.about.title, past.about.workspace) == (
        "s-1",
        "Mend the build",
        "/home/u/shop",
    )


def item(payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": "2026-03-01T10:00:00.000Z", "type": "response_item", "payload": payload}


def text(role: str, words: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return item({"type": "message", "role": role, "content": [{"type": kind, "text": words}]})


def test_codex_items_become_messages(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "sessions" / "2026" / "03" / "01" / "rollout-2026-03-01T10-00-00-abc.jsonl",
        {"type": "session_meta", "payload": {"id": "abc", "cwd": "/home/u/shop"}},
        text("user", "<environment_context>\n  <cwd>/home/u/shop</cwd>\n</environment_context>"),
        {"type": "turn_context", "payload": {"model": "gpt-x"}},
        text("user", "list the files"),
        item({"type": "reasoning", "summary": []}),
        item({"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"}),
        item({"type": "function_call", "name": "shell", "arguments": '{"command":["pwd"]}', "call_id": "c2"}),
        item({"type": "function_call_output", "call_id": "c2", "output": "/home/u/shop"}),
        item(
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": '{"output":"no","metadata":{"exit_code":1}}',
            }
        ),
        {"type": "event_msg", "payload": {"type": "token_count"}},
        text("assistant", "Here they are."),
    )
    assert codex.files(tmp_path) == [path]
    past, bad = codex.read(path)
    assert past is not None
    assert bad == 0
    roles = [row.message.role for row in past.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [row.message.tool_call_id for row in past.messages[2:4]] == ["c1", "c2"]
    assert (past.messages[2].error_kind, past.messages[2].exit_code) == ("exit", 1)
    assert (past.about.id, past.about.model, past.about.title) == ("abc", "gpt-x", "list the files")


def test_a_transcript_in_which_nobody_spoke_is_no_session(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "rollout-x.jsonl", {"type": "session_meta", "payload": {"id": "x"}}, "", "garbage"
    )
    assert codex.read(path) == (None, 1)
    assert claude_code.read(lines(tmp_path / "y.jsonl", {"type": "user"}, "[1]", "\x00")) == (None, 2)


def test_only_fields_say_that_a_call_failed() -> None:
    assert ending_of('{"success": false}').error_kind == "failed"
    assert ending_of('{"output": "", "exit_code": 3}') == Ending("exit", 3)
    assert ending_of('{"error": "no such file"}').error_kind == "failed"
    assert ending_of('{"error": null, "text": "error"}').error_kind == ""
    assert ending_of("Error: this is a page about errors").error_kind == ""
    assert ending_of("{" * 100_000).error_kind == ""
    assert ending_of("oops", is_error=True).error_kind == "failed"
