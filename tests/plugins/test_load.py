"""Which plugins load, in which order, and that a broken one takes nothing down with it."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from tests.plugins.rig import TOOL, loading, reasons, write
from whet.plugins.load import PluginHost

GOOD = TOOL.format(name="good_tool")
REGISTER = """
def register(ctx):
    ctx.register_tool(name="a", toolset="b", schema={{"name": "a"}}, handler={})
"""
BROKEN = {
    "raises": ("import nothing_like_this", "import"),
    "syntax": ("def register(ctx:", "SyntaxError"),
    "exits": ("raise SystemExit(3)", "tried to end the program"),
    "no-register": ("x = 1", "no function register(ctx)"),
    "in-register": (
        "def register(ctx):\n    ctx.register_command('a', print)\n    1 / 0",
        "ZeroDivisionError",
    ),
    "async-register": ("async def register(ctx):\n    pass", "must not be async"),
    "no-handler": (REGISTER.format("None"), "can't be called"),
    "odd-option": (REGISTER.format("print, x=1"), "does not know x"),
}


@pytest.mark.fast_rows("async-register", "exits", "no-register", "raises", "syntax")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_disables_itself_with_a_reason_and_nothing_else(home: Path, name: str) -> None:
    code, reason = BROKEN[name]
    write(home, name, code)
    write(home, "good", GOOD)
    with loading(home, name, "good") as loaded:
        assert [tool.name for tool in loaded.tools] == ["good_tool"]
        assert [state.is_loaded for state in loaded.plugins] == [False, True]
        assert reason in reasons(loaded) and f"plugin {name}: disabled" in reasons(loaded)
        assert not loaded.commands
        prefix = "hermes_plugins." + name.replace("-", "_")
        assert not [module for module in sys.modules if module.startswith(prefix)]
        assert len(loaded.take_news()) == 1 and loaded.take_news() == []


def test_only_what_is_enabled_loads_and_disabled_wins(home: Path) -> None:
    for name in ("one", "two", "three"):
        write(home, name, TOOL.format(name=f"tool_{name}"))
    with loading(home, "three", "one", "two", disabled=("two",)) as loaded:
        assert [tool.name for tool in loaded.tools] == ["tool_three", "tool_one"]
    with loading(home, "nine") as loaded:
        assert "enabled but not installed; installed: one, three, two" in reasons(loaded)


def test_a_folder_may_be_one_level_deeper_a_link_or_an_engine_without_manifest(
    home: Path, tmp_path: Path
) -> None:
    write(home, "tools/deep", TOOL.format(name="deep"))
    code = TOOL.format(name="linked")
    elsewhere = write(tmp_path / "other", "linked-code", code, manifest="name: linked\n")
    (home / "plugins" / "link").symlink_to(elsewhere)
    bare = "def register(ctx):\n    ctx.register_command('bare', lambda t: __name__)"
    write(home, "context_engine/bare", bare, manifest=None)
    with loading(home, "tools/deep", "linked", "bare") as loaded:
        assert [tool.name for tool in loaded.tools] == ["deep", "linked"]
        modules = {"hermes_plugins.tools__deep", "hermes_plugins.link", "plugins.context_engine.bare"}
        assert modules <= set(sys.modules)
    assert not [name for name in sys.modules if name.split(".")[0] in ("hermes_plugins", "plugins")]


def test_submodules_are_relative_and_late_imports_work(home: Path) -> None:
    code = """
        from .inner import VALUE

        def register(ctx):
            def late(text):
                from .late import answer
                return answer(text)
            ctx.register_command(VALUE, late)
    """
    files = {"inner.py": 'VALUE = "from-inner"\n', "late.py": "def answer(text):\n    return text.upper()\n"}
    write(home, "parts", code, files=files)
    import asyncio

    with loading(home, "parts") as loaded:
        assert loaded.commands[0].name == "from-inner"
        assert asyncio.run(loaded.commands[0].run("hello")) == "HELLO"


def test_the_project_counts_only_where_it_is_allowed_and_wins_over_the_home(
    home: Path, tmp_path: Path
) -> None:
    write(home, "same", TOOL.format(name="from_home"))
    write(tmp_path / ".whet", "same", TOOL.format(name="from_project"))
    host = PluginHost(workspace=tmp_path)
    with loading(home, "same", host=host) as loaded:
        assert [tool.name for tool in loaded.tools] == ["from_home"]
    with loading(home, "same", host=host, project=True) as loaded:
        assert [tool.name for tool in loaded.tools] == ["from_project"]


def test_an_installed_package_wins_over_folders(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "packaged", TOOL.format(name="from_home"))
    site = tmp_path / "site"
    about = site / "packaged_plugin-4.2.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: packaged-plugin\nVersion: 4.2\nSummary: Sums\n"
    )
    (about / "entry_points.txt").write_text("[whet.plugins]\npackaged = packaged_plugin\n")
    code = "def register(ctx):\n    ctx.register_command('packaged', lambda text: text)\n"
    (site / "packaged_plugin.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))
    with loading(home, "packaged") as loaded:
        assert loaded.plugins[0].manifest.version == "4.2"
        assert loaded.plugins[0].registrations == {"commands": ["/packaged"]} and not loaded.tools
    del sys.modules["packaged_plugin"]


@pytest.mark.parametrize("text", ["name: [", "- a list\n", "name: ../up\n", "name: " + "x" * 70_000])
def test_a_manifest_that_can_not_be_read_is_a_problem_of_that_plugin(home: Path, text: str) -> None:
    write(home, "odd", GOOD, manifest=text)
    write(home, "good", GOOD)
    with loading(home, "odd", "good") as loaded:
        assert [problem.plugin for problem in loaded.problems] == ["odd"]
        assert len(loaded.tools) == 1


def test_env_file_and_home_are_in_place_before_a_plugin_runs_and_gone_afterwards(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_BOTH", "environment")
    monkeypatch.setenv("HERMES_HOME", "/another/home")
    home.mkdir()
    (home / ".env").write_text("ONLY_IN_FILE=file\nFROM_BOTH=file\nWHET_HOME=/wrong\n")
    code = """
        import os
        SEEN = [os.environ[name] for name in ("ONLY_IN_FILE", "FROM_BOTH", "HERMES_HOME", "WHET_HOME")]
        def register(ctx):
            ctx.register_command("seen", lambda text: None, description=" ".join(SEEN))
    """
    write(home, "looks", code)
    with loading(home, "looks") as loaded:
        assert loaded.commands[0].description == f"file environment {home} {home}"
    assert "ONLY_IN_FILE" not in os.environ and os.environ["HERMES_HOME"] == "/another/home"


def test_what_a_plugin_prints_while_it_loads_stays_off_stdout(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, "chatty", "print('at import')\ndef register(ctx):\n    print('in register')\n")
    with loading(home, "chatty"):
        assert capsys.readouterr() == ("", "at import\nin register\n")


def test_two_hosts_of_one_process_share_a_plugins_code_until_the_last_is_closed(home: Path) -> None:
    write(home, "good", GOOD)
    with loading(home, "good"):
        with loading(home, "good") as second:
            assert len(second.tools) == 1
            module = sys.modules["hermes_plugins.good"]
        assert sys.modules["hermes_plugins.good"] is module
    assert "hermes_plugins" not in sys.modules


def test_what_a_plugin_logs_stands_once_in_our_log_however_often_it_is_loaded(home: Path) -> None:
    class Ours(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    lines: list[str] = []
    ours, handler = logging.getLogger("whet.plugins"), Ours()
    log = """
    import logging
    logging.getLogger(__name__).warning("here I am")
    """
    write(home, "talks", log + TOOL.format(name="talk"))
    ours.addHandler(handler)
    try:
        for count in (1, 2):
            with loading(home, "talks"):
                assert lines == ["here I am"] * count
    finally:
        ours.removeHandler(handler)
