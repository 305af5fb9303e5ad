"""Engines for Hermes Agent: the modules that they import, and an instance for each agent.

`hermes_style` behaves like the real ones: it imports `agent.context_engine`, calls no `super().__init__`,
keeps an SQLite connection that can't be copied, and its slash command is a closure over the instance.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.plugins.rig import loading, reasons, write
from whet.contract.context_engine import ContextEngine
from whet.contract.errors import PluginError
from whet.plugins import hermes
from whet.plugins.load import PluginHost

HERMES_STYLE = """
    import json, os, sqlite3
    from agent.context_engine import ContextEngine

    class Engine(ContextEngine):
        def __init__(self, path):
            self.db = sqlite3.connect(path, check_same_thread=False)
            self.db.execute("create table if not exists rows (text)")
            self.closed = 0

        @property
        def name(self):
            return "style"

        def update_from_response(self, usage):
            self.last_prompt_tokens = usage.get("prompt_tokens", 0)

        def should_compress(self, prompt_tokens=None):
            return True

        def compress(self, messages, current_tokens=None, focus_topic=None):
            from agent.auxiliary_client import call_llm
            answer = call_llm(task="compression", messages=[{"role": "user", "content": "sum up"}],
                              temperature=0.3, max_tokens=50, timeout=60.0)
            return [{"role": "user", "content": answer.choices[0].message.content}]

        def on_session_start(self, session_id, **kwargs):
            self.session = session_id

        def get_tool_schemas(self):
            return [{"name": "style_status", "parameters": {}}]

        def shutdown(self):
            self.closed += 1
            self.db.close()

    def register(ctx):
        from hermes_cli.config import get_hermes_home
        from gateway.session_context import get_session_env
        from hermes_cli.plugins import get_plugin_manager

        engine = Engine(get_hermes_home() / "style.db")
        ctx.register_context_engine(engine)
        ctx.register_command("style", lambda raw: getattr(engine, "session", "(unbound)"))
        ctx.register_hook("subagent_start", lambda: get_session_env("HERMES_SESSION_ID", "none"))
        def late(**facts):
            return engine
        get_plugin_manager()._hooks.setdefault("post_llm_call", []).append(late)
"""


def present() -> set[str]:
    return {name for name in sys.modules if name.split(".")[0] in hermes.PACKAGES}


def test_the_modules_are_there_only_while_such_a_plugin_is_loaded(home: Path) -> None:
    write(home, "style", HERMES_STYLE)
    write(home, "plain", "def register(ctx):\n    pass\n")
    assert not present()
    with loading(home, "plain"):
        assert not present()
    with loading(home, "style") as loaded:
        assert not loaded.problems
        module = importlib.import_module("agent.context_engine")
        assert module.ContextEngine is ContextEngine and importlib.util.find_spec("agent.context_engine")
        assert importlib.util.find_spec("hermes_cli.auth") is None
        with pytest.raises(ImportError):
            importlib.import_module("agent.context_compressor")
    assert not present()


def test_a_module_that_was_there_before_comes_back(home: Path) -> None:
    write(home, "style", HERMES_STYLE)
    sys.modules["agent"] = mine = ModuleType("agent")
    try:
        with loading(home, "style") as loaded:
            assert loaded.engines and sys.modules["agent"] is not mine
        assert sys.modules["agent"] is mine and present() == {"agent"}
    finally:
        del sys.modules["agent"]


def test_fresh_instances_have_their_own_connection_and_a_command_that_is_bound_to_them(home: Path) -> None:
    write(home, "style", HERMES_STYLE)
    with loading(home, "style") as loaded:
        engine = loaded.engines["style"]
        with pytest.raises(TypeError):
            copy.deepcopy(engine.prototype)
        first, second = engine.make_instance(), engine.make_instance()
        instances = [engine.prototype, first, second]
        assert len({id(instance.db) for instance in instances}) == 3  # type: ignore[attr-defined] (the plugin's own)
        first.on_session_start("s1")
        texts = [asyncio.run(loaded.find_command("style", one).run("")) for one in (first, second, None)]  # type: ignore[union-attr] (it is there)
        assert texts == ["s1", "(unbound)", "(unbound)"] and loaded.find_command("nothing", first) is None
        # Hooks that were put into the plugin manager's table belong to the instance that put them there.
        late = loaded.hooks.bound_to(first).hooks_named("post_llm_call")
        assert [hook.function() for hook in late] == [first] and late[0].plugin == "style"
        assert loaded.hooks.bound_to(engine.prototype) is loaded.hooks
        assert [hook.function() for hook in loaded.hooks.hooks_named("post_llm_call")] == [engine.prototype]
        assert loaded.plugins[0].registrations["tools"] == ["style_status"]
        assert engine.offer.fresh is not None and engine.offer.source == "style"
        second.shutdown()  # type: ignore[attr-defined] (as above)
    assert engine.prototype.closed == 1 and first.closed == 0  # type: ignore[attr-defined] (as above)


def test_an_engine_that_can_not_be_made_again_says_so(home: Path) -> None:
    code = HERMES_STYLE.replace("def register(ctx):", "MADE = []\n    def register(ctx):").replace(
        "ctx.register_context_engine(engine)",
        "MADE.append(engine)\n        if len(MADE) == 2: raise OSError('disk full')\n"
        "        ctx.register_context_engine(MADE[0])",
    )
    write(home, "style", code)
    with loading(home, "style") as loaded:
        engine = loaded.engines["style"]
        with pytest.raises(PluginError, match="OSError: disk full"):
            engine.make_instance()
        with pytest.raises(PluginError, match="the same instance again"):
            engine.make_instance()


def test_model_calls_reach_the_host_and_its_failure_reaches_the_plugin(home: Path) -> None:
    write(home, "style", HERMES_STYLE)
    asked: list[hermes.ModelRequest] = []

    def answer(request: hermes.ModelRequest) -> str:
        asked.append(request)
        if len(asked) == 2:
            raise TimeoutError("too slow")
        return "a summary"

    with loading(home, "style", host=PluginHost(ask_model=answer)) as loaded:
        engine = loaded.engines["style"].prototype
        assert engine.compress([]) == [{"role": "user", "content": "a summary"}]
        assert (asked[0].task, asked[0].max_tokens, asked[0].timeout_s) == ("compression", 50, 60.0)
        with pytest.raises(TimeoutError):
            engine.compress([])
    with loading(home, "style") as loaded, pytest.raises(RuntimeError, match="no model"):
        loaded.engines["style"].prototype.compress([])


def test_plugin_code_sees_the_session_that_it_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "style", HERMES_STYLE)
    with loading(home, "style") as loaded:

        async def asked() -> list[str]:
            with hermes.session_scope("s7", "c1"):
                return await loaded.hooks.call_all("subagent_start")

        assert asyncio.run(asked()) == ["s7"]
        assert asyncio.run(loaded.hooks.call_all("subagent_start")) == ["none"]
        monkeypatch.setenv("HERMES_SESSION_ID", "from-env")
        assert asyncio.run(loaded.hooks.call_all("subagent_start")) == ["from-env"]


def test_a_hook_that_is_unknown_here_is_said_so(home: Path) -> None:
    write(home, "style", HERMES_STYLE.replace("post_llm_call", "pre_lunch_call"))
    with loading(home, "style") as loaded:
        assert "plugin style: there is no hook pre_lunch_call" in reasons(loaded)


def test_an_engine_finds_on_itself_that_the_next_count_is_awaited() -> None:
    class Stubborn(hermes.ContextEngine):  # type: ignore[misc]
        name = "stubborn"  # type: ignore[assignment]
        update_from_response = should_compress = compress = lambda self, *given: None  # type: ignore[assignment]
        last_completion_tokens = property(lambda self: 5)  # type: ignore[assignment]

    engine = Stubborn()  # type: ignore[abstract]
    with pytest.raises(AttributeError):
        hermes.await_real_usage(engine, 900)
    assert engine.last_prompt_tokens == -1 and engine.last_compression_rough_tokens == 900
    assert engine.awaiting_real_usage_after_compression is True and engine.last_completion_tokens == 5
