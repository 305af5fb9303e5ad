"""`whet plugins` on real homes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.running import invoke
from tests.plugins.rig import TOOL, write
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import NotFound


def run(home: Path, *arguments: str, **more: Any) -> Result:
    return invoke("plugins", *arguments, width=100, **more)


def enabled(home: Path) -> tuple[str, ...]:
    return load(Home(home), environ={}).settings.plugins.enabled


def test_install_asks_and_never_enables(home: Path, tmp_path: Path) -> None:
    source = write(tmp_path, "count", TOOL.format(name="count"), manifest="name: count\nauthor: A Person\n")
    refused = run(home, "install", str(source), input="n\n")
    assert refused.exit_code == 1 and "count by A Person" in refused.output and "as you" in refused.output
    assert not (home / "plugins").exists() and not list(home.glob(".plugin-*"))
    assert "it is off: whet plugins enable count" in run(home, "install", str(source), input="y\n").output
    assert enabled(home) == ()
    assert "count   -        off    -" in run(home, "list").output


@pytest.mark.slow
def test_enable_disable_and_list(home: Path) -> None:
    write(
        home, "one", TOOL.format(name="a_tool"), manifest="name: one\nversion: 1.5\nprovides_tools: [x, y]\n"
    )
    write(home, "two", "1 / 0")
    assert "one     1.5      off    2 tools" in run(home, "list").output
    run(home, "enable", "one")
    run(home, "enable", "two")
    run(home, "enable", "two")
    assert enabled(home) == ("one", "two")
    listed = run(home, "list").output
    assert "one     1.5      on      1 tool" in listed
    assert "two     1.2      broken" in listed
    assert "plugin two: disabled (import): ZeroDivisionError" in listed
    rows = json.loads(run(home, "list", "--json").stdout)["plugins"]
    assert rows[0]["has"] == {"tools": ["a_tool"]} and not rows[1]["loaded"] and rows[1]["enabled"]
    assert "two is off from the next start" in run(home, "disable", "two").output
    assert enabled(home) == ("one",)
    assert "off already" in run(home, "disable", "two").output


@pytest.mark.slow
def test_a_list_calls_no_hook_and_doctor_does(home: Path) -> None:
    mark = home / "called"
    code = (
        "from pathlib import Path\n\n\ndef register(ctx):\n    ctx.register_hook('on_session_start', start)\n"
    )
    write(home, "one", f"{code}\n\ndef start(**facts):\n    Path({str(mark)!r}).touch()\n")
    run(home, "enable", "one")
    assert " on " in run(home, "list").output and not mark.exists()
    run(home, "doctor")
    assert mark.exists()


def test_enabling_takes_a_plugin_off_the_disabled_list(home: Path) -> None:
    write(home, "one", TOOL.format(name="a_tool"))
    (home / "config.yaml").write_text("plugins:\n  enabled: [one]\n  disabled: [one, other]\n")
    assert "off" in run(home, "list").output
    run(home, "enable", "one")
    settings = load(Home(home), environ={}).settings.plugins
    assert (settings.enabled, settings.disabled) == (("one",), ("other",))


@pytest.mark.parametrize("command", ["enable", "disable", "doctor"])
def test_an_unknown_name_is_said_so(home: Path, command: str) -> None:
    assert isinstance(run(home, command, "nothing").exception, NotFound)


@pytest.mark.slow
def test_doctor_explains_and_fails_where_one_does_not_load(home: Path) -> None:
    write(home, "good", TOOL.format(name="a_tool"))
    write(home, "bad", "import no_such_module")
    (home / "config.yaml").write_text("plugins:\n  enabled: [good, gone]\n")
    result = run(home, "doctor")
    assert result.exit_code == 1
    assert "good: ok, loaded in" in result.output and "tools: a_tool" in result.output
    assert "gone: does not load" in result.output and "not installed; installed: bad, good" in result.output
    result = run(home, "doctor", "bad")
    assert result.exit_code == 1 and "No module named 'no_such_module'" in result.output
    assert run(home, "doctor", "good").exit_code == 0
    guarded = "try:\n    from agent.nothing_here import X\nexcept ImportError:\n    X = None\n"
    write(home, "lacking", guarded + TOOL.format(name="b_tool"))
    assert "lacking: ok" in run(home, "doctor", "lacking").output
    write(home, "idle", "def register(ctx):\n    pass")
    assert "idle: loaded in 0." in (shown := run(home, "doctor", "idle").output)
    assert "but brings nothing that Whet knows" in shown and "ok" not in shown
    assert json.loads(run(home, "doctor", "good", "--json").stdout)[0]["is_loaded"]
