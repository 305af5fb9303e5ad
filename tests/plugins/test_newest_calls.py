# ruff: noqa: E501 plugins are written here as text
"""What Hermes Agent of this autumn offers plugins: state, settings, prompt sections, middleware, the last word on
an answer, and a word on commands; in the shape that public plugins use them."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.rig import loading, reasons, write
from tests.plugins.test_public_shapes import PLAIN, result, talk
from tests.rewind.running import Consenting
from whet.contract.brought_text import drop_marks
from whet.contract.errors import PluginError
from whet.contract.events import Notice
from whet.plugins.kept import PersistentValues
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

CALL = ScriptedReply(tool_calls=(PracticeCall("plain", '{"path": "a"}', "c1"),))
DONE = ScriptedReply("Done.")


def test_state_is_there_at_the_next_start_and_is_nobody_elses(home: Path) -> None:
    code = """
        def register(ctx):
            cursor = ctx.state.get("cursor", default={"page": 0})
            ctx.state.set("cursor", {"page": cursor["page"] + 1})
            ctx.state.set("gone", 1)
            ctx.state.delete("gone")
    """
    write(home, "one", code)
    write(home, "other-one", code)
    for _ in range(2):
        with loading(home, "one") as loaded:
            assert not loaded.problems
    with loading(home, "other-one"):
        pass
    assert json.loads((home / "plugin-data/one/state.json").read_text()) == {"cursor": {"page": 2}}
    assert json.loads((home / "plugin-data/other_one/state.json").read_text()) == {"cursor": {"page": 1}}


@pytest.mark.slow
def test_state_survives_many_writers_and_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    def count(name: str) -> None:
        for number in range(20):
            PersistentValues("p", tmp_path).set(f"{name}{number}", number)

    threads = [threading.Thread(target=count, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(PersistentValues("p", tmp_path).all()) == 80
    (tmp_path / "state.json").write_text("{broken")
    with pytest.raises(PluginError, match="left as it is"):
        PersistentValues("p", tmp_path).set("a", 1)
    assert (tmp_path / "state.json").read_text() == "{broken"


def test_state_refuses_what_json_can_not_hold_and_too_much(tmp_path: Path) -> None:
    state = PersistentValues("p", tmp_path)
    with pytest.raises(PluginError, match="JSON can't hold it"):
        state.set("a", object())
    with pytest.raises(PluginError, match="bytes"):
        state.set("a", "x" * 11_000_000)
    assert state.all() == {}


def test_a_setting_that_a_plugin_writes_is_read_back_and_the_file_keeps_the_rest(home: Path) -> None:
    write(
        home,
        "one",
        """
        def register(ctx):
            ctx.set_config("retry.attempts", ctx.get_config("retry.attempts", default=3) + 1)
            ctx.set_config("endpoint", "https://example.invalid")
        """,
    )
    before = (
        "# mine\nplugins:\n  enabled: [one]\n  entries:\n    two:\n      settings: {a: 1}  # stays\n"
        "    one:\n      mcp_allowlist: [files]\n"
    )
    (home / "config.yaml").write_text(before)
    for attempts in (4, 5):
        with loading(home, "one") as loaded:
            assert reasons(loaded) == ""
        text = (home / "config.yaml").read_text()
        assert text.startswith("# mine\n") and "settings: {a: 1}  # stays\n" in text
        assert f"attempts: {attempts}" in text and "files" in text and "example.invalid" in text


SECTION, MIDDLEWARE_OF = (
    "register_system_prompt_section({!r}, 'text')",
    "register_middleware({!r}, lambda **_: None)",
)


@pytest.mark.fast_rows("nonsense", "Capital", "set_config('',")
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *((f"set_config({key!r}, 1)", "is not a setting's name") for key in ("", "a..b", ".a")),
        *((SECTION.format(name), "is not a section's name") for name in ("Capital", "", "a b", "x" * 129)),
        *(
            (MIDDLEWARE_OF.format(kind), f"no {kind} here")
            for kind in ("llm_request", "llm_execution", "nonsense")
        ),
    ],
)
def test_a_call_that_the_host_does_not_take_disables_the_plugin(home: Path, call: str, reason: str) -> None:
    write(home, "one", f"def register(ctx):\n    ctx.{call}\n")
    with loading(home, "one") as loaded:
        assert reason in reasons(loaded) and not loaded.plugins[0].is_loaded


def test_prompt_sections_are_in_every_request_of_a_session_and_asked_for_once(home: Path) -> None:
    write(
        home,
        "rules",
        """
        calls = []
        def board(info):
            calls.append(dict(info))
            return f"Rules for {info['platform']} and {info['model']}, asked {len(calls)} times."
        def register(ctx):
            ctx.register_system_prompt_section("b.board", board, position="after_memory", max_chars=200)
            ctx.register_system_prompt_section("a-plain", "Say less.")
            ctx.register_system_prompt_section("c.long", "x" * 300, max_chars=200)
            ctx.register_system_prompt_section("d.broken", lambda info: 1 / 0)
            ctx.register_system_prompt_section("e.empty", "  ")
        """,
    )
    write(home, "other", "def register(ctx):\n    ctx.register_system_prompt_section('a-plain', 'Taken.')\n")
    write(home, "plain", PLAIN)
    _, texts, requests = talk(home, ("rules", "other", "plain"), [CALL, DONE])
    prompts = [json.loads(request)["messages"][0]["content"] for request in requests]
    assert len(prompts) == 2 and prompts[0] == prompts[1]
    assert prompts[0].index("Say less.") < prompts[0].index("Rules for cli and practice, asked 1 times.")
    assert "Taken." not in prompts[0] and "xxx" not in prompts[0]
    text = "\n".join(texts)
    for part in ("a-plain is refused", "c.long is left out", "ZeroDivisionError", "e.empty is left out"):
        assert part in text


def test_sections_of_all_plugins_have_one_limit(home: Path) -> None:
    code = "def register(ctx):\n    for n in range(4):\n        ctx.register_system_prompt_section(f's{n}', 'y' * 2500)\n"
    write(home, "one", code)
    _, texts, requests = talk(home, ("one",), [DONE])
    prompt = json.loads(requests[0])["messages"][0]["content"]
    assert prompt.count("y" * 2500) == 3 and "s3 is left out" in "\n".join(texts)


MIDDLEWARE = """
    def register(ctx):
        def request(tool_name, args, original_args, **facts):
            return {"args": {**args, "path": original_args["path"] + "!"}, "source": "mine"} if tool_name == "plain" else None
        def execution(*, tool_name, args, next_call, session_id, turn_id, tool_call_id, **facts):
            assert session_id and turn_id and tool_call_id
            return f"[{next_call(args)}]" if tool_name == "plain" else next_call(args)
        ctx.register_middleware("tool_request", request)
        ctx.register_middleware("tool_execution", execution)
"""


AROUND = """
    def register(ctx):
        {} around(*, args, next_call, **facts):
            {}
        ctx.register_middleware("tool_execution", around)
"""


def called_through(home: Path, middleware: str) -> tuple[list[Any], list[str]]:
    """Run a turn whose call goes through a plugin's middleware; give its events and problems."""
    write(home, "plain", PLAIN)
    write(home, "mid", middleware)
    return talk(home, ("plain", "mid"), [CALL, DONE])[:2]


def test_middleware_changes_what_is_judged_and_what_comes_back(home: Path) -> None:
    events, texts = called_through(home, MIDDLEWARE)
    assert texts == [] and result(events).preview == "[ran [('path', 'a!')]]"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('return \'{"error": "the budget is spent"}\'', "the budget is spent"),
        ("return next_call({'path': 'other'})", "other arguments"),
        ("next_call(args); return next_call(args)", "once"),
        ("raise ValueError('broken')", "broken"),
    ],
)
def test_middleware_can_refuse_and_can_not_go_round_the_gate(home: Path, body: str, says: str) -> None:
    events, _ = called_through(home, AROUND.format("def", body))
    assert result(events).error_kind and says in result(events).preview


def test_asynchronous_middleware_awaits_the_call(home: Path) -> None:
    events, texts = called_through(home, AROUND.format("async def", "return (await next_call(args)).upper()"))
    assert texts == [] and result(events).preview.startswith("RAN")


def test_a_tool_request_that_fails_stops_the_call(home: Path) -> None:
    code = "def register(ctx):\n    ctx.register_middleware('tool_request', lambda **facts: 1 / 0)\n"
    events, texts = called_through(home, code)
    assert "could not judge it" in result(events).preview and "ZeroDivisionError" in "\n".join(texts)


EDIT = ScriptedReply(
    tool_calls=(PracticeCall("write_file", '{"path": "a.py", "content": "x = 1\\n"}', "c1"),)
)
NUDGE = """
    import json
    def register(ctx):
        file = ctx.home / "asked.jsonl"
        def pre_verify(session_id, coding, attempt, final_response, changed_paths, **facts):
            with file.open("a") as out:
                out.write(json.dumps([coding, attempt, final_response, changed_paths]) + "\\n")
            return {answer}
        ctx.register_hook("pre_verify", pre_verify)
"""


@pytest.mark.parametrize(
    "answer",
    [
        '{"action": "continue", "message": "Run the formatter."} if not attempt else None',
        '{"decision": "block", "reason": "Run the formatter."} if not attempt else None',
    ],
)
def test_pre_verify_has_a_turn_that_changed_files_go_on(home: Path, answer: str) -> None:
    write(home, "nudge", NUDGE.format(answer=answer))
    events, texts, requests = talk(
        home, ("nudge",), [EDIT, ScriptedReply("Done?"), ScriptedReply("Formatted.")], Consenting()
    )
    assert texts == [] and len(requests) == 3
    assert (
        drop_marks(json.loads(requests[2])["messages"][-1]["content"])
        == "<plugin>Run the formatter.</plugin>"
    )
    assert events[-1].text == "Formatted." and events[-1].reason == "answered"
    assert any(isinstance(event, Notice) and "Run the formatter." in event.text for event in events)
    asked = [json.loads(line) for line in (home / "asked.jsonl").read_text().splitlines()]
    assert [row[1:3] for row in asked] == [[0, "Done?"], [1, "Formatted."]]
    assert all(row[3] == ["a.py"] for row in asked)


def test_pre_verify_can_not_hold_a_turn_for_ever(home: Path) -> None:
    write(home, "nudge", NUDGE.format(answer='{"action": "continue", "message": "Once more."}'))
    events, _, requests = talk(home, ("nudge",), [EDIT, *[ScriptedReply("Done.")] * 4], Consenting())
    assert len(requests) == 5 and events[-1].reason == "answered"


@pytest.mark.fast_rows("None", "mess")
@pytest.mark.parametrize(
    "answer", ["None", '{"action": "continue"}', '"keep going"', '{"action": "continue", "message": 5}']
)
def test_pre_verify_without_a_message_lets_the_turn_end(home: Path, answer: str) -> None:
    write(home, "nudge", NUDGE.format(answer=answer))
    _, _, requests = talk(home, ("nudge",), [EDIT, DONE], Consenting())
    assert len(requests) == 2


def test_pre_verify_is_not_asked_where_nothing_changed(home: Path) -> None:
    write(home, "plain", PLAIN)
    write(home, "nudge", NUDGE.format(answer='{"action": "continue", "message": "Once more."}'))
    _, _, requests = talk(home, ("nudge", "plain"), [CALL, DONE])
    assert len(requests) == 2 and not (home / "asked.jsonl").exists()


def test_a_plugins_task_runs_beside_the_sessions_and_its_failure_is_named(home: Path) -> None:
    write(
        home,
        "tasks",
        """
        def register(ctx):
            try:
                ctx.spawn_task(work(ctx, "early"))
            except RuntimeError as error:
                (ctx.home / "early.txt").write_text(str(error))
            async def start(session_id, **facts):
                ctx.spawn_task(work(ctx, "fine"), name="fine")
                ctx.spawn_task(broken(), name="bad one")
            ctx.register_hook("on_session_start", start)
        async def work(ctx, name):
            (ctx.home / f"{name}.txt").write_text(name)
        async def broken():
            raise ValueError("no such luck")
        """,
    )
    _, texts, _ = talk(home, ("tasks",), [DONE])
    assert (home / "fine.txt").read_text() == "fine"
    assert texts == ["plugin tasks: its task bad one failed: ValueError: no such luck"]


MCP_CALLER = """
    import json
    def register(ctx):
        def ask(text):
            try:
                return json.dumps(ctx.call_mcp("files", "read", {"path": text}))
            except PermissionError as error:
                return f"refused: {error}"
        ctx.register_command("ask", ask)
"""


def test_an_mcp_server_is_called_only_where_the_settings_name_it(home: Path) -> None:
    write(home, "caller", MCP_CALLER)
    with loading(home, "caller") as loaded:
        command = loaded.find_command("ask")
        assert command is not None
        text = asyncio.run(command.run("a"))
        assert text.startswith("refused: plugins.entries.caller.mcp_allowlist") and "files" in text
        (home / "config.yaml").write_text("plugins:\n  entries:\n    caller:\n      mcp_allowlist: [files]\n")
        answer: dict[str, Any] = json.loads(asyncio.run(command.run("a")))
        assert answer == {"ok": False, "error": "no session is served here"}


def test_two_plugins_of_one_name_below_folders_of_their_own_are_both_there(home: Path) -> None:
    for kind in ("context_engine", "memory"):
        write(
            home,
            f"{kind}/nachos",
            f"def register(ctx):\n    ctx.register_command({kind.replace('_', '-')!r}, lambda text: 'hi')\n",
        )
    with loading(home, "nachos", "memory/nachos") as loaded:
        assert reasons(loaded) == ""
        assert {command.name for command in loaded.commands} == {"context-engine", "memory"}
