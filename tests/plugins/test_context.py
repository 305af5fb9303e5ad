"""What register() may call, and which names are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.rig import loading, reasons, write
from tests.tools.running import context
from whet.contract.errors import BadInput, PluginError
from whet.plugins.load import LoadedPlugins, PluginHost


def call(loaded: LoadedPlugins, name: str, **arguments: Any) -> tuple[str, str]:
    tool = next(tool for tool in loaded.tools if tool.name == name)
    output = asyncio.run(tool.run(context(), arguments))
    return output.text, output.error_kind


HANDLERS = """
    import asyncio, json
    from whet.contract.tools import ToolOutput

    PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    BARE = {"name": "x", "description": "told", "parameters": PARAMETERS}

    async def slow(args, session_id):
        await asyncio.sleep(0)
        return f"{args['n']} in {session_id}"

    def fails(args, **facts):
        raise ValueError("no such\\nthing")

    def register(ctx):
        def add(name, handler, schema=BARE, **more):
            ctx.register_tool(name=name, toolset="t", schema=schema, handler=handler, **more)
        add("plain", lambda args: args["n"] + 1)
        add("slow", slow, {"type": "function", "function": BARE})
        add("only_parameters", lambda args: None, PARAMETERS, description="given", effects={"read"})
        add("fails", fails)
        add("says_error", lambda args: json.dumps({"error": "not found"}))
        add("says_none", lambda args: {"error": None, "rows": []})
        add("own", lambda args: ToolOutput("text", exit_code=2, error_kind="exit"), timeout_s=None)
        add("unchecked", lambda args: 1, check_fn=lambda: False)
        add("needs_key", lambda args: 1, requires_env=["NOT_SET_ANYWHERE"])
"""


def test_tools_take_bare_and_wrapped_schemas_and_handlers_of_both_colours(home: Path) -> None:
    write(home, "tools", HANDLERS)
    with loading(home, "tools") as loaded:
        assert call(loaded, "plain", n=1) == ("2", "")
        assert call(loaded, "slow", n=5) == ("5 in s1", "")
        assert call(loaded, "only_parameters", n=1) == ("done", "")
        assert call(loaded, "own", n=1) == ("text", "exit")
        text, kind = call(loaded, "fails", n=1)
        assert kind == "crashed" and "plugin tools crashed: ValueError: no such thing" in text
        assert call(loaded, "says_error", n=1)[1] == "failed"
        assert json.loads(call(loaded, "says_none", n=1)[0]) == {"error": None, "rows": []}
        assert call(loaded, "says_none", n=1)[1] == ""
        by_name = {tool.name: tool for tool in loaded.tools}
        assert by_name["plain"].spec.description == "told"
        assert by_name["only_parameters"].spec.description == "given"
        assert by_name["plain"].effects == {"execute"} and by_name["plain"].tags == {"untrusted"}
        assert by_name["only_parameters"].effects == {"read"} and by_name["own"].timeout_s is None
        assert loaded.toolsets == ["t"]
        assert "unchecked" not in by_name and "its own check" in reasons(loaded)
        assert "needs_key" not in by_name and "NOT_SET_ANYWHERE not set" in reasons(loaded)


def test_arguments_are_checked_before_the_handler_runs(home: Path) -> None:
    write(home, "tools", HANDLERS)
    with loading(home, "tools") as loaded:
        for wrong in ({}, {"n": "1"}, {"n": True}, {"n": 1.5}):
            with pytest.raises(BadInput):
                call(loaded, "plain", **wrong)
        assert call(loaded, "plain", n=1.0, extra=[1]) == ("2.0", "")


def test_names_of_the_program_and_of_other_plugins_are_refused_and_the_rest_works(home: Path) -> None:
    both = """
        class Memory:
            name = "shared"
        def register(ctx):
            for name in ("terminal", "mine", "mine"):
                ctx.register_tool(name, "t", {"name": name}, lambda args: ctx.name, emoji="x")
            for name in ("/Help", " My Command ", "under_score"):
                ctx.register_command(name, lambda text: ctx.name)
            ctx.register_memory_provider(Memory())
            ctx.register_provider("models", lambda model, secrets: None)
            ctx.register_notifier("models", lambda title, text: None)
    """
    write(home, "first", both)
    write(home, "second", both)
    host = PluginHost(taken_tools=("terminal",), taken_commands=("help",))
    with loading(home, "first", "second", host=host) as loaded:
        assert [(tool.name, call(loaded, tool.name)[0]) for tool in loaded.tools] == [("mine", "first")]
        assert [(command.plugin, command.name) for command in loaded.commands] == [("first", "my-command")]
        assert loaded.memory_providers["shared"].plugin == "first" == loaded.notifiers["models"].plugin
        assert loaded.providers["models"].plugin == "first"
        text = reasons(loaded)
        assert "plugin first: its tool terminal is refused: the name belongs to Whet itself" in text
        assert "plugin first: its tool mine is refused: the name belongs to the same plugin" in text
        assert "plugin second: its tool mine is refused: the name belongs to the plugin first" in text
        assert "its command help is refused: the name belongs to Whet itself" in text
        assert (
            "plugin second: its command my-command is refused: the name belongs to the plugin first" in text
        )
        assert "/under_score can't be a command" in text
        assert all(state.is_loaded for state in loaded.plugins)


def test_commands_of_both_colours_run_and_a_failure_names_the_plugin(home: Path) -> None:
    code = """
        async def later(text):
            return text[::-1]
        def fails(text):
            raise RuntimeError("sk-" + "a" * 30)
        def register(ctx):
            ctx.register_command("later", later, "Backwards", "TEXT")
            ctx.register_command("nothing", lambda text: None)
            ctx.register_command("fails", fails)
    """
    write(home, "talks", code)
    with loading(home, "talks") as loaded:
        later, nothing, fails = loaded.commands
        assert asyncio.run(later.run("abc")) == "cba" and later.args_hint == "TEXT"
        assert asyncio.run(nothing.run("")) == ""
        with pytest.raises(PluginError) as caught:
            asyncio.run(fails.run(""))
        assert caught.value.plugin == "talks" and caught.value.message == "RuntimeError: [REDACTED]"


def test_a_capability_that_the_host_does_not_use_is_absent(home: Path) -> None:
    code = """
        def register(ctx):
            names = [name for name in dir(type(ctx)) if name.startswith("register_") and hasattr(ctx, name)]
            names += [str(hasattr(ctx, "context_engine_tool_handlers_receive_messages"))]
            ctx.register_command("probe", lambda text: None, description=" ".join(names))
    """
    write(home, "probes", code)
    host = PluginHost(offers=frozenset({"register_command", "register_hook"}))
    with loading(home, "probes", host=host) as loaded:
        assert loaded.commands[0].description == "register_command register_hook False"


def test_unknown_hooks_are_refused_with_the_list(home: Path) -> None:
    write(home, "hooks", "def register(ctx):\n    ctx.register_hook('before_lunch', print)\n")
    with loading(home, "hooks") as loaded:
        assert "there is no hook before_lunch; there are pre_tool_call, post_tool_call" in reasons(loaded)


ENGINES = """
    from whet.contract.context_engine import ContextEngine

    class Engine(ContextEngine):
        def __init__(self, name):
            self._name = name
        @property
        def name(self):
            return self._name
        def update_from_response(self, usage):
            pass
        def should_compress(self, prompt_tokens=None):
            return False
        def compress(self, messages, current_tokens=None, focus_topic=None):
            return messages

    def register(ctx):
        ctx.register_context_engine({})
"""


def test_engines_are_checked_one_per_plugin_and_names_are_not_shared(home: Path) -> None:
    write(home, "one", ENGINES.format("Engine('a')"))
    write(home, "two", ENGINES.format("Engine('b'))\n        ctx.register_context_engine(Engine('c')"))
    write(home, "again", ENGINES.format("Engine('a')"))
    write(home, "built-in", ENGINES.format("Engine('compressor')"))
    write(home, "wrong", ENGINES.format("object()"))
    write(home, "a-class", ENGINES.format("Engine"))
    host = PluginHost(taken_engines=("compressor",))
    with loading(home, "one", "two", "again", "built-in", "wrong", "a-class", host=host) as loaded:
        assert {name: engine.plugin for name, engine in loaded.engines.items()} == {"a": "one", "b": "two"}
        text = reasons(loaded)
        assert "plugin two: its second engine c is refused; the first, b, is used" in text
        assert "plugin again: its engine a is refused: the name belongs to the plugin one" in text
        assert "plugin built-in: its engine compressor is refused: the name belongs to Whet itself" in text
        assert "plugin wrong: disabled (register_context_engine): a object is not a ContextEngine" in text
        assert "plugin a-class: disabled (register_context_engine)" in text
