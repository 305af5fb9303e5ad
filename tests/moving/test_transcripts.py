"""Claude Code's and Codex's transcripts, read line by line into the same values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.running import invoke
from whet.memory import typed
from whet.moving import claude_code, codex
from whet.moving.lines import JsonLines
from whet.moving.pairing import Ending, parse_ending

KEY = "sk-" + "ant0123456789abcdefghijklmnopqrstuvwxyz"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def said(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    base = {"type": kind, "sessionId": "s-1", "cwd": "/home/u/shop", "timestamp": "2026-03-01T10:00:00.000Z"}
    return base | {"message": message} | more


def test_a_summary_by_a_model_is_no_word_of_the_person(tmp_path: Path) -> None:
    summary = "The conversation continues. <summary>So far.</summary> The user wants each branch pushed."
    path = lines(
        tmp_path / "s-1.jsonl", said("user", summary, isCompactSummary=True), said("user", "fine, go on")
    )
    past, _ = claude_code.read(path)
    assert past is not None
    written, typed_text = (row.message.text for row in past.messages)
    assert "The user wants each branch pushed." in written
    assert (typed.split(written)[0], typed.split(typed_text)[0]) == ("", "fine, go on")
    assert past.header.title == "fine, go on"


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
    assert (past.header.id, past.header.title, past.header.workspace) == (
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
    assert (past.header.id, past.header.model, past.header.title) == ("abc", "gpt-x", "list the files")


def test_codex_own_blocks_are_no_words_of_the_person(tmp_path: Path) -> None:
    instructions = "# AGENTS.md instructions for /home/u/shop\n\n<INSTRUCTIONS>\n{}\n</INSTRUCTIONS>"
    context = "<environment_context>\n  <cwd>/home/u/shop</cwd>\n</environment_context>"
    typed = "# Notes\n\nWhat does <INSTRUCTIONS> mean in AGENTS.md?"
    blocks = [
        {"type": "input_text", "text": words}
        for words in ("<recommended_plugins>\nx\n</recommended_plugins>", instructions.format("y"), context)
    ]
    path = lines(
        tmp_path / "rollout-1.jsonl",
        {"type": "session_meta", "payload": {"id": "abc", "cwd": "/home/u/shop"}},
        item({"type": "message", "role": "user", "content": blocks}),
        text("user", instructions.format("Close with </INSTRUCTIONS>, always")),
        text("user", f"{instructions.format('z')}\n\n{context}\nlist the plums"),
        text("assistant", "Two."),
        text("user", "<turn_aborted>\nThe person stopped it.\n</turn_aborted>"),
        text("user", typed),
        text("user", "<skill-x>why?</skill-x>"),
    )
    past, _ = codex.read(path)
    assert past is not None
    words = [row.message.text for row in past.messages if row.message.role == "user"]
    assert words == ["list the plums", typed, "<skill-x>why?</skill-x>"]
    assert past.header.title == "list the plums"


def test_claude_code_reminders_are_left_out(tmp_path: Path) -> None:
    reminder = "<system-reminder>\nKeep it.\n</system-reminder>"
    source = f'TEXT = """{reminder}"""\nprint(TEXT)'

    def result(name: str, content: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": name, "content": content}

    def call(name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": name, "name": "Read", "input": {}}

    def block(words: str) -> dict[str, str]:
        return {"type": "text", "text": words}

    path = lines(
        tmp_path / "s-1.jsonl",
        said("user", [block(reminder), block("why?")], uuid="u1"),
        said("user", [block(reminder)], uuid="u2", parentUuid="u1"),
        said("user", f"fix it {reminder}\nnow", uuid="u3", parentUuid="u1"),
        said("user", reminder, uuid="u4", parentUuid="u1"),
        said("assistant", [call("t1"), call("t2")], uuid="u5", parentUuid="u3"),
        said("user", [result("t1", f"{source}\n\n{reminder}\n\n{reminder}\n")], uuid="u6", parentUuid="u5"),
        said("user", [result("t2", [block(f"1 row\n{reminder}"), block(reminder)])], parentUuid="u6"),
        said("user", "What is <system-reminder>?", uuid="u7", parentUuid="u6"),
    )
    past, _ = claude_code.read(path)
    assert past is not None
    texts = [row.message.text for row in past.messages]
    assert texts == ["why?", "fix it \nnow", "", source, "1 row", "What is <system-reminder>?"]


def test_a_transcript_in_which_nobody_spoke_is_no_session(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "rollout-x.jsonl", {"type": "session_meta", "payload": {"id": "x"}}, "", "garbage"
    )
    assert codex.read(path) == (None, 1)
    assert claude_code.read(lines(tmp_path / "y.jsonl", {"type": "user"}, "[1]", "\x00")) == (None, 2)


def test_only_fields_say_that_a_call_failed() -> None:
    assert parse_ending('{"success": false}').error_kind == "failed"
    assert parse_ending('{"output": "", "exit_code": 3}') == Ending("exit", 3)
    assert parse_ending('{"error": "no such file"}').error_kind == "failed"
    assert parse_ending('{"error": null, "text": "error"}').error_kind == ""
    assert parse_ending("Error: this is a page about errors").error_kind == ""
    assert parse_ending("{" * 100_000).error_kind == ""
    assert parse_ending("oops", is_error=True).error_kind == "failed"


def test_a_file_that_can_not_be_read_is_listed_and_costs_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-home-u-shop"
    lines(folder / "s-1.jsonl", said("user", "zebra?"), said("assistant", "A zebra."))
    (folder / "a-gone.jsonl").symlink_to("nowhere")
    (folder / "b-folder.jsonl").mkdir()
    os.mkfifo(folder / "c-pipe.jsonl")
    done = invoke("import", "claude-code", str(tmp_path), "--json", env={"WHET_HOME": str(tmp_path / "home")})
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["sessions"]["new"] == 1
    assert sorted(Path(file).name for file in report["unreadable_files"]) == [
        "a-gone.jsonl",
        "b-folder.jsonl",
        "c-pipe.jsonl",
    ]


def test_one_line_that_is_odd_costs_no_other(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "s-2.jsonl",
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {"a": [1]}},
        {"type": "system", "subtype": "compact_boundary", "content": "x", "isMeta": None},
        said("user", "first", timestamp=17, isSidechain=None, cwd=None),
        said("user", "<local-command-stdout>printed</local-command-stdout>"),
        said("user", "a helper's", isSidechain=True),
        said(
            "assistant",
            [{"type": "server_thing", "x": 1}, {"type": "text", "text": "second"}],
            message={"id": None, "usage": {"input_tokens": None}, "model": None},
        ),
        said("user", "[" * 5_000 + "]" * 5_000),
        '{"type": "user", "message": {"content": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        {"type": "user", "message": "of another kind"},
        "",
    )
    with path.open("ab") as file:
        file.write(b'{"type": "user", "message": {"content": "\xff\xfe"}}\n')
        file.write(json.dumps(said("user", "third")).encode() + b"\n")
        file.write(json.dumps(said("user", "torn")).encode()[:-7])
    past, bad = claude_code.read(path)
    assert past is not None
    texts = [row.message.text for row in past.messages]
    assert [texts[0], texts[1], texts[-1]] == ["first", "second", "third"] and len(texts) == 4
    assert past.messages[1].usage is None
    assert bad == 4, "too deep, of another kind, no UTF-8, torn"


def test_a_run_of_nuls_takes_no_whole_line_beside_it(tmp_path: Path) -> None:
    path = lines(tmp_path / "s-2.jsonl", said("user", "first"))
    second, third, torn = (json.dumps(said("user", text)).encode() for text in ("second", "third", "torn"))
    with path.open("ab") as file:
        file.write(bytes(5_000) + second + b"\n" + torn[:-7] + bytes(4_096) + third + bytes(9) + b"\n")
    past, bad = claude_code.read(path)
    assert past is not None
    assert [row.message.text for row in past.messages] == ["first", "second", "third"]
    assert bad == 2, "both lines lost something"


def test_what_was_compacted_is_kept_and_the_model_sees_what_it_saw(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "s-3.jsonl",
        said("user", "long ago"),
        said("assistant", "done"),
        said("user", "This session is being continued: all was done.", isCompactSummary=True),
        said("assistant", "going on", message={"id": "m9"}),
    )
    past, _ = claude_code.read(path)
    assert past is not None and past.live == (2, 3) and len(past.messages) == 4
    alone, _ = claude_code.read(lines(tmp_path / "s-4.jsonl", said("user", "summary", isCompactSummary=True)))
    assert alone is not None and (alone.header.title, alone.live) == ("", None)
    path = lines(
        tmp_path / "rollout-a.jsonl",
        {"type": "session_meta", "payload": {"id": "fork", "cwd": "/w"}},
        {"type": "session_meta", "payload": {"id": "its-parent", "cwd": "/other"}},
        text("user", "long ago"),
        item({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}),
        {"type": "compacted", "payload": {"message": "All was done.", "replacement_history": [{"x": 1}]}},
        item({"type": "function_call_output", "call_id": "c1", "output": "late"}),
        item({"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}}),
        {"type": "something_new", "payload": {"type": 5, "id": "x"}},
        text("assistant", "going on"),
    )
    past, bad = codex.read(path)
    assert past is not None and bad == 0
    assert (past.header.id, past.header.workspace, past.header.title) == ("fork", "/w", "long ago")
    assert [row.message.role for row in past.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert past.live == (3, 4)


def test_a_key_in_the_first_words_is_not_in_the_title_and_no_count_is_too_large(tmp_path: Path) -> None:
    words = f"why is {'x' * 40} {KEY} refused?"
    usage = {"input_tokens": 2**70, "output_tokens": -3}
    answer = said("assistant", "so", message={"id": "m", "usage": usage})
    past, bad = claude_code.read(lines(tmp_path / "s.jsonl", said("user", words), answer))
    other, _ = codex.read(lines(tmp_path / "rollout-k.jsonl", text("user", words)))
    assert past is not None and other is not None and bad == 0
    assert KEY[:12] not in past.header.title + other.header.title
    assert past.messages[0].message.text == words
    used = past.messages[1].usage
    assert used is None or 0 <= used.total_tokens < 2**62, "a count that none can be is passed over"


def test_codex_says_how_a_command_ended_before_its_output(tmp_path: Path) -> None:
    head = "Chunk ID: 5f2a\nWall time: 0.2 seconds\nProcess exited with code {}\nOutput:\n"
    texts = [head.format(2) + "no such file", head.format(0) + "Exit code: 7", "Output:\nExit code: 1"]
    rows: list[dict[str, object]] = [{"type": "message", "role": "user", "content": [{"text": "go"}]}]
    for number, text in enumerate(texts):
        call: dict[str, object] = {"type": "function_call", "name": "exec_command", "arguments": "{}"}
        rows.append(call | {"call_id": f"c{number}"})
        rows.append({"type": "function_call_output", "call_id": f"c{number}", "output": text})
    path = tmp_path / "rollout-1.jsonl"
    path.write_text("".join(json.dumps({"type": "response_item", "payload": row}) + "\n" for row in rows))
    session, _ = codex.read(path)
    assert session is not None
    ended = [(row.error_kind, row.exit_code) for row in session.messages if row.message.role == "tool"]
    assert ended == [("exit", 2), ("", 0), ("", None)]


def test_codex_older_transcripts_are_read(tmp_path: Path) -> None:
    """Before its version 0.40 a line was the item itself."""
    rows: list[dict[str, object]] = [
        {"id": "old-1", "timestamp": "2025-05-07T17:24:21.597Z", "instructions": "x"},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"metadata":{"exit_code":1}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Nothing."}]},
    ]
    path = tmp_path / "rollout-2025-05-07-x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    session, bad = codex.read(path)
    assert session is not None and bad == 0 and session.header.id == "old-1"
    assert [row.message.text[:8] for row in session.messages] == ["list", "", '{"metada', "Nothing."]
    assert session.messages[2].exit_code == 1 and session.started_ms == 1746638661597


def test_a_branch_that_was_left_in_claude_code_counts_as_never_said(tmp_path: Path) -> None:
    def line(kind: str, uuid: str, parent: str | None, content: object) -> str:
        message = {"role": kind, "content": content, "id": uuid}
        return json.dumps({"type": kind, "uuid": uuid, "parentUuid": parent, "message": message}) + "\n"

    path = tmp_path / "s.jsonl"
    call: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    path.write_text(
        line("user", "u1", None, "first")
        + line("assistant", "a1", "u1", [{"type": "text", "text": "one"}])
        + line("user", "u2", "a1", "delete it")
        + line("assistant", "a2", "u2", [call])
        + line("user", "r2", "a2", [result])
        + line("assistant", "a3", "r2", [{"type": "text", "text": "deleted"}])
        + line("user", "u3", "a1", "keep it")
        + line("assistant", "a4", "u3", [{"type": "text", "text": "kept"}])
    )
    session, _ = claude_code.read(path)
    assert session is not None
    assert [row.message.text for row in session.messages] == ["first", "one", "keep it", "kept"]


def test_lines_that_claude_code_wrote_again_count_once_and_abandon_nothing(tmp_path: Path) -> None:
    first = said("user", "first question", uuid="u1", parentUuid=None)
    answer = said("assistant", [{"type": "text", "text": "first answer"}], uuid="a1", parentUuid="u1")
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "parentUuid": None}
    summary = said("user", "A summary.", uuid="u2", parentUuid="c1", isCompactSummary=True)
    later = said("user", "second question", uuid="u3", parentUuid="u2")
    session, bad = claude_code.read(
        lines(tmp_path / "s.jsonl", first, answer, first, answer, boundary, summary, later, first, answer)
    )
    assert session is not None
    texts = [row.message.text for row in session.messages]
    tagged = "<earlier-conversation>\nA summary.\n</earlier-conversation>"
    assert (texts, bad) == (["first question", "first answer", tagged, "second question"], 0)


@pytest.mark.parametrize("fields", [{}, {"parentUuid": None}, {"parentUuid": None, "uuid": None}])
def test_a_claude_code_transcript_without_parents_is_read_in_its_order(
    tmp_path: Path, fields: dict[str, None]
) -> None:
    texts = [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
        ("user", "third"),
    ]
    path = tmp_path / "s.jsonl"
    rows = [
        {"type": kind, "uuid": f"u{number}", **fields, "message": {"role": kind, "content": text}}
        for number, (kind, text) in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    session, _ = claude_code.read(path)
    assert session is not None
    assert [row.message.text for row in session.messages] == [text for _, text in texts]


def test_a_first_prompt_that_was_edited_counts_once(tmp_path: Path) -> None:
    rows = [("user", "u1", None, "frist"), ("assistant", "a1", "u1", "?"), ("user", "u2", None, "first")]
    path = tmp_path / "s.jsonl"
    lines = [
        {"type": kind, "uuid": uuid, "parentUuid": parent, "message": {"role": kind, "content": text}}
        for kind, uuid, parent, text in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    session, _ = claude_code.read(path)
    assert session is not None and [row.message.text for row in session.messages] == ["first"]


def test_a_line_that_fits_in_no_memory_is_passed_over(tmp_path: Path) -> None:
    decoder = msgspec.json.Decoder(dict[str, str])
    path = lines(tmp_path / "x", {"a": "1"}, {"b": "x" * 5_000}, {"c": "3"}, {"d": "y" * 5_000})
    json_lines = JsonLines(path, decoder, max_bytes=1_000)
    assert list(json_lines) == [{"a": "1"}, {"c": "3"}]
    assert json_lines.bad == 2
