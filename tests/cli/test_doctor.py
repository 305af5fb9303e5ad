"""`whet doctor` on whole and on broken homes."""

from __future__ import annotations

import json
import os
import re
import tomllib
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import Result

from tests.cli.running import invoke
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.cli import checks, database_checks
from whet_lab.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]


def run(home: Path, *arguments: str, env: dict[str, str] | None = None) -> Result:
    return invoke("doctor", *arguments, env=env)


def report(home: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    result = run(home, *arguments, "--json", env=env)
    rows = json.loads(result.stdout)["checks"]
    order = ["ok", "warning", "failed"]
    worst: dict[str, Any] = {}
    for row in rows:
        if row["name"] not in worst or order.index(row["state"]) > order.index(worst[row["name"]]["state"]):
            worst[row["name"]] = row
    return result.exit_code, worst


def test_a_fresh_home_is_fine_and_untouched(home: Path) -> None:
    code, fields = report(home)
    assert code == 0
    assert fields["database"]["text"] == "none yet"
    assert fields["model"]["state"] == "warning"
    assert "whet config set model.provider" in fields["model"]["fix"]
    assert not home.exists()


def test_a_used_home_is_fine(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", Said("a", "b"))
    (home / "config.yaml").write_text("model:\n  provider: openai\n")
    code, fields = report(home, env={"OPENAI_API_KEY": "sk-0123456789012345678"})
    assert code == 0
    assert fields["database"]["text"].startswith("whole, schema ")
    assert fields["model"]["state"] == "ok"
    assert fields["sqlite"]["state"] == "ok"
    assert fields["home"]["state"] == "ok"


def test_a_database_that_can_not_be_written_is_checked_and_not_moved_away(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, "Lunch", Said("a", "b"))
    connect = apsw.Connection

    def refuse_writing(name: str, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
        if flags == apsw.SQLITE_OPEN_READWRITE and name.endswith("state.db"):
            raise apsw.ReadOnlyError("attempt to write a readonly database")
        return connect(name, flags=flags)

    monkeypatch.setattr(apsw, "Connection", refuse_writing)  # root may write everywhere
    assert report(home)[1]["database"]["text"].startswith("whole, schema ")


def test_everything_broken_is_told_all_at_once(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", *[Said("a" * 500, "b" * 500)] * 20)
    data = bytearray((home / "state.db").read_bytes())
    data[4096 : len(data) - 4096] = os.urandom(len(data) - 8192)
    (home / "state.db").write_bytes(data)
    (home / "config.yaml").write_text("model:\n  modle: x\n")
    (home / ".env").write_text("what is this\n")
    (home / ".env").chmod(0o644)
    home.chmod(0o755)
    code, fields = report(home)
    assert code == 1
    assert fields["config"]["state"] == "failed" and "line 2" in fields["config"]["text"]
    assert fields["config"]["fix"] == "did you mean model.model?"
    assert fields[".env"]["state"] == "warning"
    assert fields["home"]["state"] == "warning" and "chmod 700" in fields["home"]["fix"]
    assert fields["database"]["state"] == "failed" and f"mv {home}/state.db" in fields["database"]["fix"]
    output = run(home).output
    assert "✗ database" in output and "fix:" in output and "failed" in output.splitlines()[-1]


def test_a_database_that_is_none_or_from_the_future(home: Path, clock: FixedClock) -> None:
    home.mkdir(mode=0o700)
    (home / "state.db").write_text("not a database at all, just some text\n" * 100)
    code, fields = report(home)
    assert code == 1 and fields["database"]["state"] == "failed"
    (home / "state.db").unlink()
    store(home, clock, "Lunch", Said("a", "b"))
    connection = apsw.Connection(str(home / "state.db"))
    connection.pragma("user_version", 99)
    connection.close()
    code, fields = report(home)
    assert code == 1 and "newer" in fields["database"]["text"] and "upgrade" in fields["database"]["fix"]


def test_a_missing_key_and_an_unknown_provider_fail(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model:\n  provider: openai\n")
    code, fields = report(home)
    assert code == 1 and "OPENAI_API_KEY" in fields["model"]["fix"]
    assert report(home, "--online")[1].keys() == fields.keys()
    (home / "config.yaml").write_text("model:\n  provider: openay\n")
    assert report(home)[1]["model"]["state"] == "failed"


def test_language_servers_are_listed_for_the_workspace_s_files(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, programs = tmp_path / "work", tmp_path / "programs"
    for folder in (home, work, programs):
        folder.mkdir(mode=0o700)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", str(programs))
    for name in ("WHET_LSP_ENABLED", "WHET_SANDBOX_MODE"):
        monkeypatch.delenv(name, raising=False)

    def rows(**settings: object) -> list[tuple[str, str, str]]:
        (home / "config.yaml").write_text(json.dumps(settings))
        checks = json.loads(run(home, "--json").stdout)["checks"]
        return [(row["state"], row["text"], row["fix"]) for row in checks if row["name"] == "languages"]

    assert rows() == []
    for name in ("main.go", "lib.rs", "b.zig"):
        (work / name).touch()
    (programs / "gopls").write_text("#!/bin/sh\n")
    (programs / "gopls").chmod(0o755)
    off = "or set enabled: false for {} in the setting lsp.servers"
    rust = "rustup component add rust-analyzer; " + off.format("rust")
    assert rows() == [
        ("ok", f"go: {programs / 'gopls'}", ""),
        ("warning", "rust: no server (rust-analyzer)", rust),
    ]
    zig = {"zig": {"command": "zls", "files": ["*.zig"]}, "rust": {"enabled": False}}
    assert rows(lsp={"servers": zig}) == [
        ("ok", f"go: {programs / 'gopls'}", ""),
        ("warning", "zig: no server (zls)", f"install zls; {off.format('zig')}"),
    ]
    assert rows(lsp={"enabled": False}) == []
    [row] = rows(sandbox={"mode": "off"})
    assert row[:2] == ("warning", "no server runs: there is no sandbox")


def test_online_asks_the_server(home: Path) -> None:
    home.mkdir(mode=0o700)
    with PracticeServer() as server:
        (home / "config.yaml").write_text(f"model:\n  provider: practice\n  base_url: {server.base_url}\n")
        code, fields = report(home, "--online")
        assert code == 0 and "answers in" in fields["server"]["text"]
        (home / "config.yaml").write_text(f"model:\n  base_url: {server.base_url}\n  model: nobody\n")
        assert report(home, "--online")[1]["server"]["state"] == "warning"
    code, fields = report(home, "--online")
    assert code == 1 and fields["server"]["state"] == "failed"
    (home / "config.yaml").write_text("model:\n  provider: practice\n")  # its server is in this process
    assert report(home, "--online")[1]["server"]["state"] == "ok"


def test_missing_programs_are_warnings(tmp_path: Path) -> None:
    findings = list(checks.check_commands(str(tmp_path)))
    names = ("bash", "git", "rg")
    assert {(finding.name, finding.state) for finding in findings} == {(name, "warning") for name in names}


def test_secrets_stay_out_of_the_report(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model:\n  format: sk-abcdefghijklmnopqrstuvwxyz\n")
    assert "abcdefgh" not in run(home).output + run(home, "--json").output


def test_it_fits_a_narrow_terminal(home: Path) -> None:
    lines = run(home, env={"COLUMNS": "40"}).output.splitlines()
    assert all(len(line) <= 40 or len(max(line.split(), key=len)) > 28 for line in lines)


def test_a_large_store_is_read_whole_only_on_demand(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, "Lunch", *[Said("a" * 500, "b" * 500)] * 20)
    monkeypatch.setattr(database_checks, "CHECKED_WHOLE_BYTES", 1_000)
    _, fields = report(home)
    assert fields["database"]["text"].startswith("opens and reads (all of it: whet doctor --full)")
    _, fields = report(home, "--full")
    assert fields["database"]["text"].startswith("whole, schema ")
    data = (home / "state.db").read_bytes()
    (home / "state.db").write_bytes(data[:8192] + os.urandom(len(data) - 8192))
    code, fields = report(home)
    assert code == 1 and fields["database"]["state"] == "failed"


def test_a_database_that_was_cut_names_what_can_be_read(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, "Lunch", *[Said("findable lunch " * 200, "b" * 500)] * 20)
    store(home, clock, "Dinner", *[Said("dinner " * 200, "b" * 500)] * 20)
    path = home / "state.db"
    data = path.read_bytes()
    pages = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    leaf = next(i for i, page in enumerate(pages) if page[0] == 13 and b"lunch findable lunch" in page)
    pages[leaf] = b"\xff" * 4096
    path.write_bytes(b"".join(pages))
    assert "1 of 2 sessions can still be read" in report(home)[1]["database"]["text"]
    monkeypatch.setattr(database_checks, "CHECKED_WHOLE_BYTES", 1_000)
    assert "1 of 2 sessions can still be read" in report(home)[1]["database"]["text"]
    for content in (data[: len(data) // 2], b"not a database at all, just some text\n" * 100):
        path.write_bytes(content)
        code, fields = report(home)
        assert code == 1 and fields["database"]["text"].endswith("; no session can be read")


def test_a_session_whose_calls_are_damaged_is_not_counted_as_readable(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", Said("lunch", "b"))
    store(home, clock, "Dinner", Said("dinner", "b"))
    path = home / "state.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE messages SET extra = ? WHERE content = 'lunch'", ("calls " * 3_000,))
        connection.pragma("wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    pages = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    pages = [b"\xff" * 4096 if page.count(b"calls ") > 600 else page for page in pages]
    path.write_bytes(b"".join(pages))
    _, fields = report(home)
    assert "1 of 2 sessions can still be read" in fields["database"]["text"]


def test_the_sandbox_and_the_changed_settings_are_named(home: Path) -> None:
    _, fields = report(home)
    assert fields["sandbox"]["text"]
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("agent:\n  max_steps: 7\nsandbox:\n  mode: 'off'\n")
    _, fields = report(home)
    changed = "settings changed: agent.max_steps, sandbox.mode, review.worker, lsp.enabled"
    assert fields["config"]["text"].endswith(changed)
    assert fields["sandbox"]["state"] == "warning"


def test_every_declared_package_is_checked(home: Path) -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = {re.split(r"[^\w.-]", line)[0].replace("-", "_") for line in lines if ";" not in line}
    text = report(home)[1]["packages"]["text"]
    assert {part.split()[0].replace("-", "_") for part in text.split(", ")} == names


def test_installed_packages_of_extras_are_listed_with_their_extra(home: Path) -> None:
    assert re.search(r"\bpypdf [\d.]+ \(documents\)", report(home)[1]["extras"]["text"])


def test_a_crash_of_a_command_is_named_until_it_is_a_week_old(home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    log = home / "logs" / "whet.log"
    row = {"level": "error", "logger": "whet.cli", "message": "unexpected ModuleNotFoundError"}
    row["stack"] = "Traceback\nModuleNotFoundError: No module named 'wsproto'"
    old = {**row, "time": "2020-01-01T00:00:00"}
    log.write_text('cut off {"message": "unexpected \n' + json.dumps(old) + "\n")
    assert report(home)[1]["log"]["state"] == "ok"
    now = datetime.now().isoformat(timespec="seconds")
    log.write_text(log.read_text() + json.dumps({**row, "time": now}) + "\n")
    code, fields = report(home)
    assert (code, fields["log"]["state"]) == (0, "warning")
    last = f"{now} ModuleNotFoundError: No module named 'wsproto'"
    assert fields["log"]["text"] == f"1 crash in 7 days, the last: {last}"


def test_working_trees_of_helpers_that_were_kept_are_counted(home: Path) -> None:
    assert "trees" not in report(home)[1]
    tree = home.with_name(f"{home.name}-worktrees") / "h1" / "repo"
    tree.mkdir(parents=True)
    (tree / "report.html").write_bytes(b"x" * 3_000_000)
    trees = report(home)[1]["trees"]
    assert trees["state"] == "ok"
    assert trees["text"] == f"1 working tree of helpers, 3.0 MB, in {tree.parents[1]}"


def test_deny_rules_for_files_are_explained(home: Path) -> None:
    home.mkdir()
    config = home / "config.yaml"
    config.write_text('approval:\n  deny: ["read_file(secrets/*)", "write(*.lock)", "terminal(curl *)"]\n')
    result = run(home, "--json")
    texts = [row["text"] for row in json.loads(result.stdout)["checks"] if row["name"] == "rule"]
    assert texts == [
        "deny read_file(secrets/*): no tool and no command reads or changes secrets/*",
        "deny write(*.lock): no tool and no command changes *.lock",
    ]
    config.write_text(config.read_text() + 'sandbox:\n  mode: "off"\n')
    assert report(home)[1]["rule"]["state"] == "warning"


def test_a_deny_rule_that_names_no_tool_is_a_warning(home: Path) -> None:
    home.mkdir()
    rules = '["Read(secrets/*)", "read", "read(a)", "terminal(x *)", "mcp__s__t", "*_file", "keys/*"]'
    (home / "config.yaml").write_text(f"approval:\n  deny: {rules}\n")
    rows = json.loads(run(home, "--json").stdout)["checks"]
    texts = [row["text"] for row in rows if row["name"] == "rule" and row["state"] == "warning"]
    expected = ["deny Read(secrets/*)", "deny read", "deny keys/*"]
    assert [text.split(" names ")[0] for text in texts] == expected
