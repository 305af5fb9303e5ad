# ruff: noqa: E501 plugins are written here as text
"""A context engine and a memory in the shape of public ones, in the real program: what they print, what they are
given when a list is made smaller, and hooks that tell of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls
from tests.cli.running import Tty
from tests.plugins.rig import loading, write
from tests.stories.program import Program
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ENGINE = """
    import json, sys
    from agent.context_engine import ContextEngine
    from hermes_constants import get_hermes_home

    print("LOUD at import")

    class Loud(ContextEngine):
        threshold_tokens = 10
        context_length = 8_000

        @property
        def name(self): return "loud"

        def _log(self, *words):
            print("LOUD", words[0])
            print("LOUD", words[0], file=sys.stdout, flush=True)
            with (get_hermes_home() / "engine.jsonl").open("a") as out:
                out.write(json.dumps(words, default=str) + "\\n")

        def update_from_response(self, usage): self._log("update_from_response")
        def should_compress(self, prompt_tokens=None): return (get_hermes_home() / "always").exists()
        def should_compress_preflight(self, messages): return len(messages) > 2
        def on_session_start(self, session_id, **facts): self._log("on_session_start", session_id)
        def on_session_end(self, session_id, messages): self._log("on_session_end", session_id)
        def on_session_reset(self): self._log("on_session_reset")
        def carry_over_new_session_context(self, old_session_id, new_session_id):
            self._log("carry_over", old_session_id, new_session_id)

        def compress(self, messages, current_tokens=None, focus_topic=None, memory_context=""):
            self._log("compress", memory_context)
            return [{"role": "user", "content": "Summary of before."}, *messages[-1:]]

    def register(ctx):
        ctx.register_context_engine(Loud())
        ctx.register_hook("on_compaction", lambda **facts: print("LOUD hook"))
"""
MEMORY = """
    from agent.memory_provider import MemoryProvider

    class Keeper(MemoryProvider):
        name = "keeper"
        def is_available(self): return True
        def initialize(self, session_id, **facts): print("LOUD memory")
        def on_pre_compress(self, messages): return f"keep the harbour plan, {len(messages)} rows"

    def register(ctx):
        ctx.register_memory_provider(Keeper())
"""
PLAIN = """
    def register(ctx):
        ctx.register_tool("plain", "extra", {"name": "plain"}, lambda args, **facts: "ran", effects={"read"})
"""


def at_home(tmp_path: Path, server: PracticeServer, more: str = "") -> Program:
    settings = {"PROVIDER": "practice", "BASE_URL": server.base_url, "MODEL": "practice"}
    program = Program(tmp_path, environ={f"WHET_MODEL_{key}": value for key, value in settings.items()})
    write(program.home, "loud", ENGINE)
    write(program.home, "keeper", MEMORY)
    plugins = f"plugins: {{enabled: [loud, keeper{more}]}}\n"
    (program.home / "config.yaml").write_text(plugins + "context: {engine: loud}\n")
    return program


def told(program: Program) -> list[list[Any]]:
    return [json.loads(line) for line in (program.home / "engine.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_an_engine_that_prints_leaves_the_json_whole_and_is_given_what_memories_keep(tmp_path: Path) -> None:
    script = [ScriptedReply("One."), ScriptedReply("Two.")]
    with PracticeServer(script=script) as server:
        program = at_home(tmp_path, server)
        first = program.run("chat", "-q", "the harbour plan", "--json")
        session = json.loads(first.out)["session_id"]
        done = program.run("chat", "-q", "go on", "--json", "--session", session)
        body = bytes(server.requests[-1].body)
    assert done.code == 0 and json.loads(done.out)["text"] == "Two.", done
    assert "LOUD" not in first.out + done.out and "LOUD at import" in first.err
    compressed = [line for line in told(program) if line[0] == "compress"]
    assert compressed == [["compress", "keep the harbour plan, 3 rows"]]
    assert b"Summary of before." in body and b"go on" in body and b"One." not in body
    logged = (program.home / "logs" / "whet.log").read_text()
    assert "LOUD compress" in logged and "LOUD hook" in logged


@pytest.mark.slow
def test_a_new_session_carries_nothing_over_and_one_instance_serves_each(tmp_path: Path) -> None:
    script = [ScriptedReply("One."), ScriptedReply("Two.")]
    with PracticeServer(script=script) as server:
        program = at_home(tmp_path, server)
        environ = {"WHET_HOME": str(program.home), **program.environ}
        with Tty(["chat"], program.work, environ=environ) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("hello\r", "1 step")
            tty.type("/new\r", "new session")
            tty.type("again\r", "1 step")
            assert tty.leave("\x04") == 0
            assert "LOUD" not in tty.drawn.partition("Ctrl-D")[2]
    lines = told(program)
    old, new = [line[1] for line in lines if line[0] == "on_session_start"][:2]
    moves = ("on_session_start", "on_session_end", "on_session_reset", "carry_over")
    moved = [line for line in lines if line[0] in moves]
    assert old != new and moved[:4] == [
        ["on_session_start", old],
        ["on_session_end", old],
        ["on_session_reset"],
        ["on_session_start", new],
    ], lines
    assert all(line[0] != "carry_over" for line in moved)
    assert [line[1] for line in lines if line[0] == "on_session_end"] == [old, new]


@pytest.mark.slow
def test_an_engine_that_drops_the_request_in_mid_turn_is_not_followed(tmp_path: Path) -> None:
    """The request stands before the calls that it led to; a list without it would leave the model without it."""
    script = [calls(("plain", "{}")), ScriptedReply("The plan.")]
    with PracticeServer(script=script) as server:
        program = at_home(tmp_path, server, ", plain")
        write(program.home, "plain", PLAIN)
        (program.home / "always").touch()
        done = program.run("chat", "-q", "what is the harbour plan?", "--json")
        requests = [bytes(request.body) for request in server.requests]
    data = json.loads(done.out)
    assert data["text"] == "The plan." and len(requests) == 2
    assert b"what is the harbour plan?" in requests[1]
    assert any("left out what is being asked" in line for line in data["notices"]), data


@pytest.mark.parametrize("name", ["short", "context_engine/short"])
def test_a_folder_that_only_defines_an_engine_offers_it(home: Path, name: str) -> None:
    code = """
        from agent.context_engine import ContextEngine

        class Short(ContextEngine):
            name = "short-list"
            def update_from_response(self, usage): pass
            def should_compress(self, prompt_tokens=None): return False
            def compress(self, messages, current_tokens=None, focus_topic=None): return messages
    """
    write(home, name, code)
    with loading(home, "short") as loaded:
        assert not loaded.problems and list(loaded.engines) == ["short-list"]
        assert loaded.engines["short-list"].make_instance().name == "short-list"
