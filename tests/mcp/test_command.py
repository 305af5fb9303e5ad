"""`whet mcp` at the command line: what it writes, what it says, and the example that the docs begin with."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from whet.cli.mcp_servers.command import mcp
from whet.config.edit import change_list
from whet.config.load import load
from whet.config.paths import Home
from whet.sandbox.engine import probe

NOTES = Path(__file__).parents[2] / "examples" / "mcp" / "notes.py"


def run(home: Path, *arguments: str, columns: int = 80) -> Result:
    """Run `whet mcp` with these arguments; a mistake is the result's exception."""
    return CliRunner().invoke(mcp, arguments, obj=Home(home), env={"COLUMNS": str(columns)})


@pytest.mark.slow
def test_the_example_is_added_listed_and_works_from_any_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "boiler.md").write_text("Boiler\nIn the cellar.\n")
    (folder / "notes.py").write_text(NOTES.read_text())
    monkeypatch.chdir(folder)
    added = run(home, "add", "notes", "--", sys.executable, "notes.py", "notes")
    assert added.exit_code == 0, added.output
    assert f"it starts in {folder}" in " ".join(added.output.split())
    assert "notes: ok, notes 1, protocol 2025-11-25, 5 tools" in added.output
    monkeypatch.chdir(tmp_path)
    tested = run(home, "test", "--json")
    report = json.loads(tested.stdout)["servers"][0]
    assert tested.exit_code == 0 and report["ok"] and 100 < report["tokens"] < 500
    assert [tool["own_name"] for tool in report["tools"]][-2:] == ["read_resource", "get_prompt"]
    narrow = run(home, "test", columns=40).stdout
    assert max(map(len, narrow.splitlines())) <= 40 and "      Read a note." in narrow


@pytest.mark.slow
def test_a_script_in_the_users_home_is_added_by_its_relative_name(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "person"
    folder.mkdir()
    (folder / "srv.py").write_text(NOTES.read_text())
    (folder / "python-x").write_text("no program")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    added = run(home, "add", "x", "--", sys.executable, "srv.py", "python-x")
    assert added.exit_code == 0, added.output
    monkeypatch.chdir(tmp_path)
    assert run(home, "test", "x").exit_code == 0
    text = (home / "config.yaml").read_text()
    assert str(folder / "srv.py") in text and f"{folder / 'python-x'}" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fs", "npx", "-y", "pkg"], "put -- before that"),
        (["fs", "--nope", "--", "x"], "No such option"),
        (["two__parts", "--", "x"], "is not a name for a server"),
        (["x"], "has neither command nor url"),
        (["x", "--url", "mcp.example.com"], "'mcp.example.com' is not a url"),
        (["x", "--url", "http://h/mcp", "--", "y"], "has both command and url"),
        (["x", "--env", "NAME", "--", "y"], "'NAME' is not NAME=VALUE"),
        (["x", "--timeout", "0", "--", "y"], "not in the range"),
    ],
)
def test_a_mistake_is_said_and_writes_nothing(home: Path, arguments: list[str], said: str) -> None:
    result = run(home, "add", *arguments)
    assert result.exit_code and said in f"{result.exception} {result.output}"
    assert not (home / "config.yaml").exists()


def test_replacing_keeps_the_login_at_the_same_url_and_test_names_what_fails(home: Path) -> None:
    url = ["--url", "http://127.0.0.1:9/mcp"]
    assert run(home, "add", "web", *url, "--no-test", "--json").exit_code == 0
    login = home / "mcp" / "web.login.json"
    login.parent.mkdir()
    login.write_text("{}")
    more = ["--header", "Authorization=Bearer abcdefgh", "--allow-http", "--start-timeout", "5"]
    added = run(home, "add", "web", *url, *more, columns=40)
    assert added.exit_code == 1 and "stands in config.yaml as plain text" in added.stderr and login.exists()
    shown = " ".join(added.stdout.split())
    assert "at 127.0.0.1:9 hint: is it running? check its url it stays in config.yaml" in shown
    assert max(map(len, added.stdout.splitlines()[2:])) <= 40  # after the path, which is not broken
    text = (home / "config.yaml").read_text()
    assert "allow_http: true" in text and "start_timeout_s: 5" in text
    tested = run(home, "test", "--json")
    problem = json.loads(tested.stdout)["servers"][0]["problem"]
    assert tested.exit_code == 1 and "can't be reached at 127.0.0.1:9" in problem
    assert json.loads(run(home, "list", "--json").stdout)["servers"][0]["state"] == "failed"
    assert run(home, "add", "web", "--url", "http://127.0.0.1:9/other", "--no-test").exit_code == 0
    assert not login.exists()


def test_logins_say_what_is_missing(home: Path) -> None:
    run(home, "add", "web", "--url", "http://127.0.0.1:9/mcp", "--no-test")
    run(home, "add", "cmd", "--no-test", "--", "x")
    missing = run(home, "login", "web", "--client-id", "me", "--client-secret-env", "NOT_THERE")
    assert "NOT_THERE is not set" in str(missing.exception)
    assert "nothing to log in to" in str(run(home, "login", "cmd").exception)
    assert "there is no MCP server 'nope'" in str(run(home, "remove", "nope").exception)
    assert json.loads(run(home, "logout", "web", "--json").stdout) == {"name": "web", "logged_out": False}
    done = json.loads(run(home, "remove", "web", "--json").stdout)
    assert done == {"name": "web", "removed": True, "rules": []}


def test_a_removed_servers_rules_are_removed_and_named(home: Path) -> None:
    for name in ("web", "web2"):
        run(home, "add", name, "--url", "http://127.0.0.1:9/mcp", "--no-test")
    change_list(Home(home), "approval.allow", ("mcp__web__look", "mcp__web__*", "mcp__web2__look", "ls"))
    assert "approval.allow, too: mcp__web__look, mcp__web__*" in run(home, "remove", "web").stdout
    assert load(Home(home), environ={}).settings.approval.allow == ("mcp__web2__look", "ls")


def test_a_server_is_tried_in_a_jail(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, outside = tmp_path / "work", Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".out-"))
    folder.mkdir()
    try:
        (folder / "server.py").write_text(f"open({str(outside / 'x')!r}, 'w')\n{NOTES.read_text()}")
        (folder / "notes").mkdir()
        monkeypatch.chdir(folder)
        added = run(home, "add", "notes", "--", sys.executable, "server.py", "notes")
        holds = probe().holds
        assert added.exit_code == int(holds), added.output
        assert (outside / "x").exists() is not holds
        assert ("notes: ok" in added.output) is not holds, added.output
    finally:
        shutil.rmtree(outside)


SPY = """
import os, pathlib
home = pathlib.Path(os.environ["HOME"])
def tried(path):
    try:
        path.write_text("x")
    except OSError:
        return False
    return True
seen = [tried(home / "kept"), tried(pathlib.Path("here")), tried(pathlib.Path({ws!r}) / "new"),
        pathlib.Path({ws!r}, "secret.txt").exists(), sorted(n for n in os.environ if "TOKEN" in n)]
with open(home / "seen", "a") as log:
    print(seen, file=log)
"""


@pytest.mark.slow
def test_a_server_has_a_private_folder_that_survives_and_no_workspace(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not probe().holds:
        pytest.skip("nothing confines here")
    workspace, programs = tmp_path / "work", tmp_path / "programs"
    workspace.mkdir()
    (workspace / "secret.txt").write_text("s")
    (programs / "notes").mkdir(parents=True)
    (programs / "server.py").write_text(SPY.format(ws=str(workspace)) + NOTES.read_text())
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("MY_TOKEN", "not-for-servers")
    command = ["--", sys.executable, str(programs / "server.py"), str(programs / "notes")]
    added = run(home, "add", "spy", *command)
    assert added.exit_code == 0 and "whet mcp test spy shows them" in " ".join(added.output.split())
    assert run(home, "add", "spy", "--write", str(workspace), *command).exit_code == 0
    folder = Home(home).servers / "spy"
    lines = (folder / "seen").read_text().splitlines()
    assert lines == ["[True, True, False, False, []]", "[True, True, True, True, []]"]
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "here").exists()
    run(home, "remove", "spy")
    assert not folder.exists()


def run_piped(home: Path, *arguments: str) -> list[str]:
    """Return the lines that `whet mcp` prints to a pipe when COLUMNS is not set."""
    return CliRunner().invoke(mcp, arguments, obj=Home(home), env={"COLUMNS": None}).output.splitlines()


def test_a_command_that_is_not_installed_is_named_in_one_line_with_one_hint(home: Path) -> None:
    cause, hint = run_piped(home, "add", "nope", "--", "no-such-program-xyz")[1:-1]
    assert cause.startswith("nope: no-such-program-xyz is not installed or not on PATH")
    assert hint == "  hint: install it, or write its whole path"


def test_a_file_that_can_not_be_executed_is_not_blamed_on_the_sandbox(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "work" / "server.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    output = "\n".join(run_piped(home, "add", "plain", "--", str(script)))
    assert "must be a file that you may execute" in output
    assert "openings" not in output and "confined" not in output


@pytest.mark.parametrize(
    ("code", "quoted"),
    [
        (
            "print('404: no such package\\n404\\n404\\nnote\\nmore\\nlog: /x', file=sys.stderr)",
            "404: no such package",
        ),
        ("raise ImportError('libfoo.so.1: cannot open')", "ImportError: libfoo.so.1: cannot open"),
    ],
)
def test_a_server_crashing_at_start_is_quoted_first_and_last(home: Path, code: str, quoted: str) -> None:
    lines = run_piped(home, "add", "odd", "--", sys.executable, "-c", f"import sys; {code}; sys.exit(1)")
    assert len(lines) <= 4 and quoted in lines[1], lines
    assert 'File "' not in lines[1]
