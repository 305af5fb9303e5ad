"""`whet import` as typed: what it says, what it writes, and that the sessions can be gone on with."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.hermes_db import HermesDb

from tests.cli.running import flags, run
from whet_lab.practice.server import PracticeServer

CONFIG = """
model:
  default: practice
  provider: custom
  base_url: http://127.0.0.1:1/v1
  api_key: sk-theirs-0123456789abcdef
agent: {max_turns: 40}
approvals: {mode: "off"}
display: {skin: dark}
plugins: {enabled: [hello]}
"""


def a_home(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (folder / ".env").write_text("TELEGRAM_BOT_TOKEN=12345:secretsecretsecret\nHERMES_HOME=/x\n")
    plugin = folder / "plugins" / "hello"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: hello\n")
    (plugin / "__init__.py").write_text("def register(ctx):\n    pass\n")
    hermes_db = HermesDb(folder / "state.db")
    hermes_db.session(
        "20260101_000000_abc",
        [{"role": "user", "content": "count the purple crates"}, {"role": "assistant", "content": "seven"}],
        title="Crates",
    )
    hermes_db.close()
    return folder


@pytest.mark.slow
def test_a_home_moves_in_and_what_is_set_here_stays(tmp_path: Path, home: Path) -> None:
    theirs = a_home(tmp_path / "theirs")
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model:\n  model: mine\n")
    code, out, err = run(["import", "hermes", str(theirs), "--json", "--yes"], tmp_path)
    assert (code, err) == (0, "")
    report = json.loads(out)
    how = {row["what"]: row["how"] for part in ("settings", "keys", "plugins") for row in report[part]}
    assert how["model.model"] == "kept"
    assert how["model.base_url"] == how["agent.max_steps"] == how["CUSTOM_API_KEY"] == "set"
    assert how["approvals.mode"] == how["display.skin"] == "left"
    assert how["TELEGRAM_BOT_TOKEN"] == "set"
    assert "HERMES_HOME" not in how
    assert how["hello"] == "copied"
    assert "sk-theirs" not in out
    config = (home / "config.yaml").read_text()
    assert "model: mine" in config
    assert "max_steps: 40" in config
    assert "enabled: [hello]" in config
    assert "CUSTOM_API_KEY=sk-theirs-0123456789abcdef" in (home / ".env").read_text()
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert (home / "plugins" / "hello" / "plugin.yaml").exists()
    assert "Crates" in run(["sessions", "search", "purple crates"], tmp_path)[1]


@pytest.mark.slow
def test_the_memory_provider_moves_in_with_its_facts(tmp_path: Path, home: Path) -> None:
    theirs = a_home(tmp_path / "theirs")
    (theirs / "config.yaml").write_text("memory: {provider: holographic}\n")
    code = theirs / "hermes-agent" / "plugins" / "memory" / "holographic"
    code.mkdir(parents=True)
    (code / "plugin.yaml").write_text("name: holographic\n")
    (code / "__init__.py").write_text("def register(ctx):\n    pass\n")
    (theirs / "holographic.json").write_text("{}")
    with closing(sqlite3.connect(theirs / "memory_store.db")) as facts:
        facts.execute("CREATE TABLE facts (content TEXT)")
        facts.execute("INSERT INTO facts VALUES ('Anna likes pears')")
        facts.commit()
    out = run(["import", "hermes", str(theirs), "--json", "--yes"], tmp_path)[1]
    rows = {row["what"]: (row["how"], row["why"]) for row in json.loads(out)["plugins"]}
    assert rows["holographic"] == ("copied", "enabled, as it was there")
    assert rows["memory_store.db"] == ("copied", "1 fact")
    assert rows["holographic.json"] == ("copied", "the provider's settings")
    assert "memory.provider" not in out
    with closing(sqlite3.connect(home / "memory_store.db")) as facts:
        assert facts.execute("SELECT content FROM facts").fetchall() == [("Anna likes pears",)]
    again = json.loads(run(["import", "hermes", str(theirs), "--json", "--yes"], tmp_path)[1])
    assert {row["how"] for row in again["plugins"] if row["what"].startswith("memory")} == {"kept"}


@pytest.mark.slow
def test_a_memory_provider_whose_code_is_elsewhere_is_named(tmp_path: Path, home: Path) -> None:
    theirs = a_home(tmp_path / "theirs")
    (theirs / "config.yaml").write_text("memory: {provider: honcho}\n")
    out = run(["import", "hermes", str(theirs), "--json", "--yes"], tmp_path)[1]
    [row] = [row for row in json.loads(out)["plugins"] if row["what"] == "memory.provider"]
    assert row["how"] == "left" and "plugins/memory/honcho" in row["why"]


@pytest.mark.slow
def test_an_imported_session_goes_on_with_tools_of_ours(tmp_path: Path, home: Path) -> None:
    theirs = a_home(tmp_path / "theirs")
    assert run(["import", "hermes", str(theirs), "--only", "sessions"], tmp_path)[0] == 0
    with PracticeServer() as server:
        for _ in range(2):
            asked = ["chat", "--session", "20260101_000000_abc", "-q", "go on", "--json", *flags(server)]
            code, out, err = run(asked, tmp_path)
            moved = f"the session's folder /home/u/shop no longer exists; it works in {tmp_path} now\n"
            assert (code, err) == (0, moved)
        first, second = (request.body for request in server.requests[-2:])
    assert json.loads(out)["session_id"] == "20260101_000000_abc"
    body = json.loads(first)
    assert [row["content"] for row in body["messages"][1:3]] == ["count the purple crates", "seven"]
    assert "read_file" in {tool["function"]["name"] for tool in body["tools"]}
    position = first.index(b"go on")
    assert second[:position] == first[:position]


@pytest.mark.slow
def test_a_review_of_an_imported_session_needs_a_turn_of_its_own(tmp_path: Path, home: Path) -> None:
    theirs = a_home(tmp_path / "theirs")
    assert run(["import", "hermes", str(theirs), "--only", "sessions"], tmp_path)[0] == 0
    code, out, err = run(["review", "run", "--session", "20260101_000000_abc"], tmp_path)
    assert (code, out) == (1, "")
    assert err == (
        "error: this session was imported and has no turn of its own yet\n"
        "hint: whet chat --session ID continues it; then it can be reviewed\n"
    )


@pytest.mark.slow
def test_a_folder_that_is_no_home_is_an_error_with_a_hint(tmp_path: Path) -> None:
    code, out, err = run(["import", "hermes", str(tmp_path)], tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "hint: " in err
    code, _, err = run(["import", "codex", str(tmp_path / "nowhere")], tmp_path)
    assert code == 1
    assert "there is no" in err
