"""Plugins that hang or kill their process are found out without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.rig import TOOL, write
from whet.config.paths import Home
from whet.plugins.probe import probe_plugins
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement


@pytest.mark.slow
def test_one_that_kills_its_process_does_not_hide_the_others(home: Path) -> None:
    write(home, "kills", "import os\nprint('last words', flush=True)\nos._exit(7)\n")
    write(home, "good", TOOL.format(name="good"))
    kills, good = probe_plugins(Home(home), ["kills", "good"])
    assert not kills.is_loaded and "ended with code 7 while loading. last words" in kills.problems[0]
    assert good.is_loaded and good.registrations == {"tools": ["good"]} and good.problems == []


@pytest.mark.slow
def test_one_that_hangs_is_given_up_on(home: Path) -> None:
    write(home, "hangs", "import threading\nthreading.Event().wait()\n")
    (hangs,) = probe_plugins(Home(home), ["hangs"], limit_s=1.0)
    assert not hangs.is_loaded and hangs.problems == ["loading did not end in 1 s"]


@pytest.mark.slow
def test_one_that_a_signal_ends_is_told_by_its_number(home: Path) -> None:
    write(home, "hangs_up", "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n")
    (hangs_up,) = probe_plugins(Home(home), ["hangs_up"])
    assert not hangs_up.is_loaded and "ended with signal 1 while loading" in hangs_up.problems[0]


@pytest.mark.slow
def test_hooks_and_memories_are_tried_with_real_arguments(home: Path) -> None:
    code = """
        class Wrong:
            name = "wrong"
            def initialize(self, session_id, wants, more): pass

        def register(ctx):
            ctx.register_hook("post_tool_call", lambda tool_data: None)
            ctx.register_memory_provider(Wrong())
    """
    write(home, "tried", code)
    (probe,) = probe_plugins(Home(home), ["tried"])
    assert probe.is_loaded
    assert any("hook post_tool_call fails" in line and "tool_data" in line for line in probe.problems)
    assert any("wrong failed in initialize" in line for line in probe.problems)


@pytest.mark.slow
def test_tools_are_run_on_arguments_of_their_schemas_where_they_can_do_no_harm(home: Path) -> None:
    code = """
        import pathlib, urllib.request

        SCHEMA = {"type": "object", "required": ["path", "how", "many", "rows"], "properties": {
            "path": {"type": "string"}, "how": {"enum": ["fast", "slow"]}, "many": {"type": "integer"},
            "rows": {"type": "array", "items": {"type": "object", "required": ["n"],
                     "properties": {"n": {"type": "number"}}}}, "other": {"type": "string"}}}

        def told(args, **facts):
            assert args == {"path": "README.md", "how": "fast", "many": 1, "rows": [{"n": 1}]}, args
            return pathlib.Path(facts["workspace"], args["path"]).read_text()

        def wrong(args): return args["nothing"]

        def harm(args):
            pathlib.Path(OUTSIDE).write_text("gone")

        def far(args):
            urllib.request.urlopen("http://127.0.0.1:9", timeout=5)

        def register(ctx):
            for function in (told, wrong, harm, far):
                ctx.register_tool(function.__name__, "t", SCHEMA, function)
    """
    outside = home.parent / "outside"
    outside.write_text("kept")
    write(home, "tools", code.replace("OUTSIDE", repr(str(outside))))
    (probe,) = probe_plugins(Home(home), ["tools"])
    assert probe.is_loaded and probe.problems == []
    if not Confinement(ConfinementSettings("auto", home)).status().holds:
        assert probe.tried == {}
        return
    assert probe.tried["told"] == ""
    assert "it crashed" in probe.tried["wrong"] and "nothing" in probe.tried["wrong"]
    assert "it crashed" in probe.tried["harm"] and "it crashed" in probe.tried["far"]
    assert outside.read_text() == "kept"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["json", "logging", "whet"])
def test_a_file_of_the_folder_that_it_is_called_from_is_no_module_of_ours(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(home, "good", TOOL.format(name="good"))
    (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    (good,) = probe_plugins(Home(home), ["good"])
    assert good.is_loaded and not (tmp_path / "ran").exists()
