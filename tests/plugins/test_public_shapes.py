# ruff: noqa: E501 plugins are written here as text
"""Plugins in the shape that public ones have: guards, observers, memories, and what they call of the host."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, practice_model
from tests.plugins.rig import loading, reasons, write
from tests.rewind.running import Consenting
from whet.config.permission_settings import ApprovalSettings
from whet.config.schema import PluginSettings
from whet.contract.events import Notice, ToolFinished
from whet.plugins.probe import exercise
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

KEYWORDS = {
    "pre_tool_call": "tool_name args task_id session_id tool_call_id turn_id",
    "post_tool_call": "tool_name args result session_id turn_id duration_ms status error_type error_message",
    "transform_tool_result": "tool_name args result task_id tool_call_id turn_id duration_ms status",
    "pre_llm_call": "session_id task_id turn_id user_message conversation_history is_first_turn model",
    "post_llm_call": "turn_id user_message assistant_response conversation_history model platform",
    "on_session_start": "session_id model platform",
    "on_session_end": "session_id turn_id completed failed interrupted turn_exit_reason model platform",
    "on_session_finalize": "session_id platform reason",
    "subagent_start": "parent_session_id parent_turn_id child_session_id child_role child_goal",
    "subagent_stop": "parent_session_id child_session_id child_status child_summary duration_ms",
    "pre_api_request": "turn_id api_request_id model provider api_call_count message_count",
    "post_api_request": "turn_id api_duration finish_reason usage assistant_message response_model",
    "on_stream_start": "turn_id iteration session_id model provider surface",
    "on_stream_delta": "delta kind turn_id",
    "on_stream_end": "final_text finished error turn_id",
    "pre_approval_request": "command description pattern_key session_key surface turn_id tool_call_id",
    "post_approval_response": "command choice session_key turn_id",
}
ALL_HOOKS = list(KEYWORDS)
OBSERVER = f"""
    import json

    def register(ctx):
        file = ctx.home / "seen.jsonl"
        def watch(name):
            def hook(**facts):
                with file.open("a") as out:
                    out.write(json.dumps([name, facts], default=str) + "\\n")
            return hook
        for name in {ALL_HOOKS!r}:
            ctx.register_hook(name, watch(name))
"""
PLAIN = """
    def register(ctx):
        ctx.register_tool("plain", "extra", {"name": "plain"}, lambda args, **facts: f"ran {sorted(args.items())}",
                          effects={"read"})
"""


def talk(
    home: Path,
    enabled: tuple[str, ...],
    script: list[ScriptedReply],
    person: Any = None,
    *,
    new: bool = False,
) -> tuple[list[Any], list[str], list[bytes]]:
    """One turn of a real program; gives its events, what plugins have to tell, and the requests."""
    events: list[Any] = []

    async def main(server: PracticeServer) -> list[str]:
        async with open_app(
            home,
            home,
            practice_model(server.base_url),
            person,
            plugins=PluginSettings(enabled=enabled),
            approval=ApprovalSettings(mode="auto"),
        ) as app:
            session = await app.new_session()
            await ask(session, "hello there", events)
            if new:
                session = await app.new_session(leaving=session)
                await ask(session, "once more", events)
        return [problem.line for problem in app.services.plugins.loaded.problems]  # type: ignore[union-attr]

    with PracticeServer(script=script) as server:
        texts = asyncio.run(main(server))
        return events, texts, [bytes(request.body) for request in server.requests]


def seen(home: Path) -> dict[str, dict[str, Any]]:
    """Give what each hook was last called with."""
    return dict(json.loads(line) for line in (home / "seen.jsonl").read_text().splitlines())


def result(events: list[Any]) -> ToolFinished:
    return next(event for event in events if isinstance(event, ToolFinished))


def test_a_plugins_schema_that_no_server_takes_is_sent_as_one_that_all_take(home: Path) -> None:
    part = '{"properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    write(home, "one", PLAIN.replace('"plain"}', f'"plain", "parameters": {{"allOf": [{part}]}}}}'))
    script = [calls(("plain", '{"a": 1}')), ScriptedReply(text="Done.")]
    events, _, requests = talk(home, ("one",), script)
    sent = {tool["function"]["name"]: tool["function"] for tool in json.loads(requests[0])["tools"]}
    assert sent["plain"]["parameters"] == json.loads(part) | {"type": "object"} and result(events).ok


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    home = tmp_path_factory.mktemp("observed")
    write(home, "watch", OBSERVER)
    write(home, "plain", PLAIN)
    write(home, "asks", GUARD.replace("ANSWER", '{"action": "approve", "message": "odd"}'))
    script = [
        calls(("plain", '{"a": 1}'), ("delegate_task", '{"task": "dig"}')),
        ScriptedReply("Dug."),
        ScriptedReply("Done."),
    ]
    talk(home, ("watch", "plain", "asks"), script, Consenting())
    return seen(home)


@pytest.mark.parametrize("hook", KEYWORDS)
def test_hooks_get_the_keywords_of_hermes(observed: dict[str, dict[str, Any]], hook: str) -> None:
    assert set(KEYWORDS[hook].split()) <= set(observed[hook]), observed[hook]


def test_the_keywords_say_what_happened(observed: dict[str, dict[str, Any]]) -> None:
    assert observed["pre_llm_call"]["is_first_turn"] is True
    assert observed["post_llm_call"]["turn_id"] == observed["on_session_end"]["turn_id"] != ""
    assert observed["on_session_end"]["completed"] is True
    assert isinstance(observed["post_tool_call"]["duration_ms"], int)
    assert observed["post_llm_call"]["assistant_response"] == "Done."


GUARD = """
    def register(ctx):
        def guard(tool_name, args, **kwargs):
            return ANSWER if tool_name == "plain" else None
        ctx.register_hook("pre_tool_call", guard)
"""


def guarded(home: Path, answer: str, person: Any = None) -> ToolFinished:
    write(home, "guard", GUARD.replace("ANSWER", answer))
    write(home, "plain", PLAIN)
    script = [calls(("plain", '{"a": 1}')), ScriptedReply("Done.")]
    return result(talk(home, ("guard", "plain"), script, person)[0])


def test_approve_asks_a_person_even_where_the_policy_would_not(home: Path) -> None:
    person = Consenting()
    answer = guarded(home, '{"action": "approve", "message": "it is odd"}', person)
    assert answer.ok and len(person.requests) == 1
    assert "it is odd" in " ".join(person.requests[0].reasons)


def test_approve_is_a_denial_where_nobody_is_present(home: Path) -> None:
    assert not guarded(home, '{"action": "approve", "message": "it is odd"}').ok


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [("args.update(a=7)", {"a": 7}), ('{"action": "modify", "args": {"b": 2}}', {"a": 1, "b": 2})],
    ids=["changed in place", "laid over them"],
)
def test_changed_arguments_are_what_is_judged_and_what_runs(
    home: Path, answer: str, arguments: dict[str, int]
) -> None:
    write(home, "asks", GUARD.replace("ANSWER", '{"action": "approve", "message": "odd"}'))
    write(home, "guard", GUARD.replace("ANSWER", answer))
    write(home, "plain", PLAIN)
    person, script = Consenting(), [calls(("plain", '{"a": 1}')), ScriptedReply("Done.")]
    events, _, _ = talk(home, ("guard", "asks", "plain"), script, person)
    assert person.requests[0].arguments == arguments
    assert result(events).preview == f"ran {sorted(arguments.items())}"


@pytest.mark.parametrize(
    ("answer", "says", "notices"),
    [
        ('{"action": "block", "message": "not today"}', "blocked by the plugin guard: not today", 0),
        ("1 / 0", "could not judge it", 1),
    ],
)
def test_a_block_or_a_failure_is_a_denial_that_nobody_is_asked_about(
    home: Path, answer: str, says: str, notices: int
) -> None:
    write(home, "guard", GUARD.replace("ANSWER", answer))
    write(home, "plain", PLAIN)
    person, script = Consenting(), [calls(("plain", '{"a": 1}')), ScriptedReply("Done.")]
    events, _, _ = talk(home, ("guard", "plain"), script, person)
    refused = result(events)
    assert refused.error_kind == "denied" and says in refused.preview and not person.requests
    shown = [event for event in events if isinstance(event, Notice) and "guard" in event.text]
    assert [event.must_show for event in shown] == [True] * notices


def test_after_a_call_hooks_are_told_its_status_and_change_its_result(home: Path) -> None:
    code = """
        def register(ctx):
            seen = []
            ctx.register_hook("post_tool_call", lambda status: seen.append(status))
            ctx.on_unload(lambda: (ctx.home / "statuses").write_text(" ".join(seen)))
            ctx.register_hook("transform_tool_result", lambda result: result.upper())
            ctx.register_tool("fails", "extra", {"name": "fails"}, lambda args, **facts: 1 / 0, effects={"read"})
    """
    write(home, "after", code)
    write(home, "plain", PLAIN)
    both = calls(("plain", '{"a": 1}'), ("fails", "{}"))
    events, _, _ = talk(home, ("after", "plain"), [both, ScriptedReply("Done.")])
    previews = sorted(event.preview for event in events if isinstance(event, ToolFinished))
    assert previews[0].endswith("ZERODIVISIONERROR: DIVISION BY ZERO") and previews[1] == "RAN [('A', 1)]"
    assert sorted((home / "statuses").read_text().split()) == ["error", "ok"]


@pytest.mark.parametrize("code", ["1 / 0", "import not_there_at_all\ndef register(ctx): pass"])
def test_a_guard_that_does_not_load_stops_tools_where_nobody_is_present(home: Path, code: str) -> None:
    write(home, "guard", code)
    write(home, "plain", PLAIN)
    script = [calls(("plain", '{"a": 1}')), ScriptedReply("Done.")]
    events, _, _ = talk(home, ("guard", "plain"), script)
    assert not result(events).ok
    assert any(isinstance(event, Notice) and "guard" in event.text for event in events)


def test_a_person_may_go_on_without_it(home: Path) -> None:
    write(home, "guard", "1 / 0")
    write(home, "plain", PLAIN)
    script = [calls(("plain", '{"a": 1}')), ScriptedReply("Done.")]
    assert result(talk(home, ("guard", "plain"), script, Consenting())[0]).ok


@pytest.mark.slow
def test_one_shots_tell_of_it_on_stderr_and_in_the_json_object(home: Path, tmp_path: Path) -> None:
    write(home, "guard", "1 / 0")
    write(home, "loud", LOUD)
    (home / "config.yaml").write_text(
        "model: {provider: practice, model: practice-echo}\nplugins: {enabled: [guard, loud]}\n"
    )
    command = [sys.executable, "-m", "whet", "chat", "-q", "hello", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    data = json.loads(done.stdout)
    assert any("plugin guard" in line for line in data["notices"]), data
    assert "plugin guard" in done.stderr and "LOUD" not in done.stdout


LOUD = """
    def register(ctx):
        ctx.register_hook("pre_llm_call", lambda **facts: print("LOUD"))
"""


@pytest.mark.fast_rows("command", "edits", "mcp")
@pytest.mark.parametrize("tag", ["notes", "skills", "edits", "command", "delegates", "mcp"])
def test_no_plugin_gives_its_tool_a_tag_that_is_trusted(home: Path, tag: str) -> None:
    code = f"""
        def register(ctx):
            ctx.register_tool("sly", "extra", {{"name": "sly"}}, lambda args: "x", tags=["{tag}"])
    """
    write(home, "sly", code)
    with loading(home, "sly") as loaded:
        assert not loaded.tools and tag in reasons(loaded)


MEMORY = """
    import json
    from agent.memory_provider import MemoryProvider
    from hermes_constants import get_hermes_home

    class Notes(MemoryProvider):
        @property
        def name(self): return "notes-db"
        def _log(self, *words):
            with (get_hermes_home() / "memory.jsonl").open("a") as out:
                out.write(json.dumps(words, default=str) + "\\n")
        def is_available(self): return True
        def initialize(self, session_id, **kwargs): self._log("initialize", sorted(kwargs))
        def system_prompt_block(self): return "NOTES-DB is on."
        def on_turn_start(self, turn_number, message, **kwargs): self._log("on_turn_start", turn_number, message)
        def prefetch(self, query, *, session_id=""): return f"known: {query}"
        def queue_prefetch(self, query, *, session_id=""): self._log("queue_prefetch", query)
        def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
            self._log("sync_turn", user_content, assistant_content, len(messages))
        def get_tool_schemas(self):
            return [{"name": "notes_find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}]
        def handle_tool_call(self, tool_name, args, **kwargs): return json.dumps({"found": tool_name})
        def on_session_switch(self, new_session_id, *, parent_session_id="", reset=False, rewound=False, **kwargs):
            self._log("on_session_switch", bool(parent_session_id), reset, rewound)
        def on_delegation(self, task, result, *, child_session_id="", **kwargs):
            self._log("on_delegation", task, result)
        def on_session_end(self, messages): self._log("on_session_end", len(messages))
        def shutdown(self): self._log("shutdown")

    def register(ctx):
        ctx.register_memory_provider(Notes())
"""


@pytest.mark.slow
def test_a_memory_provider_lives_its_whole_life(home: Path) -> None:
    write(home, "notes-db", MEMORY)
    script = [
        calls(("notes_find", "{}"), ("delegate_task", '{"task": "dig"}')),
        ScriptedReply("Dug."),
        ScriptedReply("One."),
        ScriptedReply("Two."),
    ]
    events, texts, requests = talk(home, ("notes-db",), script, Consenting(), new=True)
    assert texts == [] and result(events).ok
    assert b"NOTES-DB is on." in requests[0] and b"known: hello there" in requests[0]
    lines = [json.loads(line) for line in (home / "memory.jsonl").read_text().splitlines()]
    first = "initialize on_turn_start on_delegation sync_turn queue_prefetch on_session_end on_session_switch"
    second = "on_turn_start sync_turn queue_prefetch on_session_end shutdown"
    assert [line[0] for line in lines] == f"{first} {second}".split()
    assert {"hermes_home", "platform", "agent_context"} <= set(lines[0][1])
    assert lines[1][1:] == [1, "hello there"] and lines[2][1:] == ["dig", "Dug."]
    assert lines[3][1:3] == ["hello there", "One."] and lines[6][1:] == [True, True, False]


def test_a_memory_that_fails_is_told_of(home: Path) -> None:
    broken = MEMORY.replace(
        "def sync_turn(self, user_content,", "def sync_turn(self, wrong, more, user_content,"
    )
    write(home, "notes-db", broken)
    _, texts, _ = talk(home, ("notes-db",), [ScriptedReply("One.")])
    assert any("notes-db failed in sync_turn" in line and "TypeError" in line for line in texts)


def test_a_memory_that_is_not_available_says_why(home: Path) -> None:
    absent = MEMORY.replace(
        "return True", "return False\n        def unavailable_reason(self): return 'no key'"
    )
    write(home, "notes-db", absent)
    _, texts, _ = talk(home, ("notes-db",), [ScriptedReply("One.")])
    assert any("not available: no key" in line for line in texts) and not (home / "memory.jsonl").exists()


CALLS = """
    import json
    from tools.registry import registry, tool_error, tool_result
    from agent.redact import redact_sensitive_text
    from hermes_cli.config import load_config, get_hermes_home
    from hermes_constants import display_hermes_home

    def register(ctx):
        def hook(user_message, **facts):
            (ctx.home / "calls.json").write_text(json.dumps({
                "tool": ctx.dispatch_tool("plain", {"a": 5}),
                "denied": ctx.dispatch_tool("no_such", {}),
                "config": ctx.get_config("depth.colour", "none"),
                "model": ctx.llm.complete([{"role": "user", "content": "hi"}]).text,
                "home": str(get_hermes_home()), "settings": sorted(load_config()),
                "redacted": redact_sensitive_text("sk-ant-" + "a1B2" * 8),
                "error": tool_error("bad"), "result": tool_result(a=1),
            }))
        ctx.register_hook("pre_llm_call", hook)
        ctx.register_cli_command("tidy", "Tidy up.", lambda parser: parser.add_argument("what"),
                                 lambda args: print("tidied", args.what))
        registry.register(name="late", toolset="extra", schema={"name": "late"}, handler=lambda args, **kw: "x")
"""


def test_what_plugins_call_of_the_host_works(home: Path) -> None:
    write(home, "uses", CALLS)
    write(home, "plain", PLAIN)
    (home / "config.yaml").write_text("plugins: {entries: {uses: {settings: {depth: {colour: blue}}}}}\n")
    _, texts, _ = talk(home, ("uses", "plain"), [ScriptedReply("Hi."), ScriptedReply("Done.")])
    assert texts == []
    data = json.loads((home / "calls.json").read_text())
    assert "ran [('a', 5)]" in data["tool"] and "no tool named" in data["denied"]
    assert data["config"] == "blue" and data["model"] == "Hi." and data["home"] == str(home)
    assert "a1B2a1B2" not in data["redacted"] and data["error"] == '{"error": "bad"}'
    with loading(home, "uses") as loaded:
        assert [tool.name for tool in loaded.tools] == ["late"] and loaded.cli_commands[0].name == "tidy"


NEWEST = """
    import json
    from agent.memory_provider import INDICATOR_GLYPH, MemoryProvider, RecallStatus, is_trivial_prompt

    def register(ctx):
        said = {"plain": ctx.has_plugin("plain"), "other": ctx.has_plugin("other"), "profile": ctx.profile_name,
                "override": ctx.has_capability("tools.override"), "mcp": ctx.has_capability("mcp.call"),
                "trivial": [is_trivial_prompt(text) for text in ("", "Thanks!", "/new", "k8s is down", None)],
                "glyph": RecallStatus("m", 2).glyph == INDICATOR_GLYPH, "actions": hasattr(ctx, "platform_actions")}
        ends = []
        ctx.on_unload(lambda: ends.append("first") or (ctx.home / "ends.json").write_text(json.dumps(ends)))
        ctx.on_unload(lambda: 1 / 0)
        ctx.on_unload(lambda: ends.append("last"))
        (ctx.home / "newest.json").write_text(json.dumps(said))
"""


def test_what_the_newest_plugins_ask_their_host_is_answered(home: Path) -> None:
    write(home, "plain", PLAIN)
    write(home, "newest", NEWEST)
    with loading(home, "plain", "newest") as loaded:
        assert loaded.problems == [] and not (home / "ends.json").exists()
    answers = {"plain": True, "other": False, "override": True, "mcp": False, "glyph": True, "actions": False}
    answers |= {"profile": "default", "trivial": [True, True, True, False, True]}
    assert json.loads((home / "newest.json").read_text()) == answers
    assert json.loads((home / "ends.json").read_text()) == ["last", "first"]


def test_a_plugin_may_replace_a_built_in_tool_where_it_says_so(home: Path) -> None:
    code = """
        def register(ctx):
            ctx.register_tool("read_file", "file", {"name": "read_file"}, lambda args, **facts: "mine", override=True)
    """
    write(home, "mine", code)
    person = Consenting()
    script = [calls(("read_file", '{"path": "x"}')), ScriptedReply("Done.")]
    events, texts, requests = talk(home, ("mine",), script, person)
    assert texts == [] and result(events).ok and b"mine" in requests[1]


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("hermes_agent.plugins", "shape_pkg"),
        ("hermes_agent.plugins", "shape_pkg:register"),
        ("hermes_agent.memory_providers", "shape_pkg:Memory"),
        ("hermes_agent.memory_providers", "shape_pkg:register"),
    ],
)
def test_packages_of_both_groups_are_seen(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, value: str
) -> None:
    (tmp_path / "shape_pkg.py").write_text(
        "from agent.memory_provider import MemoryProvider\n"
        "class Memory(MemoryProvider):\n    name = 'shape'\n"
        "def register(ctx):\n    ctx.register_memory_provider(Memory())\n"
    )
    about = tmp_path / "shape_pkg-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shape-pkg\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\nshape = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shape_pkg", raising=False)
    with loading(home, "shape") as loaded:
        assert reasons(loaded) == "" and list(loaded.memory_providers) == ["shape"]


def test_the_final_text_can_be_changed(home: Path) -> None:
    code = "def register(ctx):\n    ctx.register_hook('transform_llm_output', lambda response_text, **k: response_text.upper())\n"
    write(home, "shout", code)
    events, _, _ = talk(home, ("shout",), [ScriptedReply("Quiet.")])
    assert events[-1].text == "QUIET."


def test_a_folder_that_only_defines_a_memory_provider_offers_it(home: Path) -> None:
    code = """
        from agent.memory_provider import MemoryProvider
        class Notebook(MemoryProvider):
            name = "notebook"
            def is_available(self): return True
            def initialize(self, session_id, **kwargs): pass
            def get_tool_schemas(self): return []
    """
    write(home, "notebook", code)
    with loading(home, "notebook") as loaded:
        assert not loaded.problems and list(loaded.memory_providers) == ["notebook"]


def test_the_doctor_tries_each_hook_with_every_keyword_that_it_gets(
    observed: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """A hook may name any of them without a default; the doctor would call it broken where one is missing."""
    lines = "\n".join(
        f"        def {hook}({', '.join(sorted(facts))}): pass\n        ctx.register_hook({hook!r}, {hook})"
        for hook, facts in observed.items()
    )
    write(tmp_path, "strict", f"    def register(ctx):\n{lines}\n")
    with loading(tmp_path, "strict") as loaded:
        assert exercise(loaded, "strict") == []
