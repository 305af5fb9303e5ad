"""`whet config` on real homes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.running import invoke
from whet.config.fields import fields
from whet.contract.errors import ConfigError


def run(home: Path, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Result:
    return invoke("config", *arguments, env=env, **more)


def as_json(home: Path, *arguments: str, env: dict[str, str] | None = None) -> Any:
    result = run(home, *arguments, "--json", env=env)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_set_get_unset(home: Path) -> None:
    assert run(home, "set", "model.model", "gpt").output == "model.model = gpt\n"
    assert run(home, "set", "model.model", "gpt-2").output == "model.model = gpt-2 (was gpt)\n"
    assert run(home, "get", "model.model").output == "gpt-2\n"
    assert as_json(home, "get", "model.model")["origin"] == "config.yaml line 2"
    assert as_json(home, "unset", "model.model") == {"key": "model.model", "before": "gpt-2", "default": ""}
    assert "was not in" in run(home, "unset", "model.model").output


def test_unset_removes_a_section_on_one_line_with_its_last_entry(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("foo: {a: 1, b: 2}\nmodel: {model: x}  # mine\n")
    run(home, "unset", "foo.a")
    assert (home / "config.yaml").read_text() == "foo: {b: 2}\nmodel: {model: x}  # mine\n"
    run(home, "unset", "foo.b")
    assert (home / "config.yaml").read_text() == "model: {model: x}  # mine\n"
    run(home, "unset", "model.model")
    assert (home / "config.yaml").read_text() == "model: {}  # mine\n"


def test_a_list_that_replaces_another_says_how_to_keep_both(home: Path) -> None:
    assert run(home, "set", "sandbox.write", "~/.cargo").stderr == ""
    line = "to keep both: whet config set sandbox.write '~/.cargo,~/a b'\n"
    assert run(home, "set", "sandbox.write", "~/a b").stderr.endswith(line)
    assert run(home, "set", "sandbox.write", "~/.cargo,~/a b").stderr == ""


def test_an_unknown_provider_is_stored_with_a_warning_unless_it_has_a_url(home: Path) -> None:
    result = run(home, "set", "model.provider", "nosuch")
    assert result.stderr.startswith("warning: no provider nosuch is known")
    assert run(home, "get", "model.provider").output == "nosuch\n"
    assert "did you mean anthropic?" in run(home, "set", "model.provider", "antropic").stderr
    assert run(home, "set", "model.provider", "anthropic").stderr == ""
    run(home, "set", "model.base_url", "http://localhost:8080/v1")
    assert run(home, "set", "model.provider", "nosuch").stderr == ""


def test_a_value_that_begins_with_a_dash_needs_no_trick(home: Path) -> None:
    result = run(home, "set", "agent.max_steps", "--", "-3")
    assert isinstance(result.exception, ConfigError) and "at least 1" in result.exception.message


def test_set_warns_when_the_environment_wins(home: Path) -> None:
    result = run(home, "set", "model.model", "gpt", env={"WHET_MODEL_MODEL": "other"})
    assert "WHET_MODEL_MODEL in the environment overrides it" in result.stderr


def test_why_tells_the_whole_story(home: Path) -> None:
    run(home, "set", "approval.mode", "deny")
    env = {"WHET_APPROVAL_MODE": "auto"}
    output = run(home, "why", "approval.mode", env=env).output
    assert "approval.mode = auto" in output
    assert "environment WHET_APPROVAL_MODE" in output
    assert "overrides  deny, config.yaml line 2" in output
    assert "ask, auto, deny" in output
    assert "a person decides" in output
    facts = as_json(home, "why", "approval.mode", env=env)
    assert facts["overrides"][0] == {"value": "deny", "origin": "config.yaml line 2"}
    assert facts["help"].startswith("ask: a person decides")
    assert all(
        len(line) <= 40
        for line in run(home, "why", "approval.mode", env={"COLUMNS": "40"}).output.splitlines()
    )


def test_why_helps_even_when_the_file_is_broken(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("approval:\n  mode: yolo\n")
    output = " ".join(run(home, "why", "approval.mode").output.split())
    assert "ask, auto, deny" in output
    assert "wrong now config.yaml line 2: approval.mode is 'yolo'" in output
    assert isinstance(run(home, "list").exception, ConfigError)


@pytest.mark.fast_rows(
    "agent.", "gateway.busy", "approval.allow", "hooks.commands", "judge.api_key_env", "mcp"
)
@pytest.mark.parametrize("key", list(fields()))
def test_why_knows_every_setting(home: Path, key: str) -> None:
    assert run(home, "why", key).exit_code == 0


def test_list_shows_every_setting_and_its_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WHET_REVIEW_WORKER", "WHET_LSP_ENABLED"):
        monkeypatch.delenv(variable)
    assert set(as_json(home, "list")) == set(fields())
    assert "Every setting has its default" in run(home, "list", "--changed").output
    run(home, "set", "ui.markdown", "no")
    assert as_json(home, "list", "--changed") == {
        "ui.markdown": {"value": False, "origin": "config.yaml line 2"}
    }
    for width in ("40", "80"):
        lines = run(home, "list", env={"COLUMNS": width}).output.splitlines()
        assert all(len(line) <= int(width) for line in lines)
        assert any(line.startswith("ui.markdown") and "false" in line for line in lines)


def test_an_address_alone_changes_no_other_setting(home: Path) -> None:
    before = set(as_json(home, "list", "--changed"))
    run(home, "set", "model.base_url", "http://127.0.0.1:9/v1")
    assert set(as_json(home, "list", "--changed")) - before == {"model.base_url"}


def test_paths(home: Path) -> None:
    assert run(home, "path").output == f"{home}/config.yaml\n"
    assert as_json(home, "path")["env"] == f"{home}/.env"


def test_secrets_go_to_env_and_are_never_printed(home: Path) -> None:
    result = run(home, "set", "GROQ_API_KEY", "-", input="gsk-very-secret\n")
    assert "gsk-very-secret" not in result.output
    assert (home / ".env").read_text() == "GROQ_API_KEY=gsk-very-secret\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    output = run(home, "get", "GROQ_API_KEY").output
    assert output == f"GROQ_API_KEY is set in {home}/.env\n"
    assert as_json(home, "get", "GROQ_API_KEY") == {
        "key": "GROQ_API_KEY",
        "is_set": True,
        "origin": f"{home}/.env",
    }
    assert as_json(home, "get", "OTHER_API_KEY")["is_set"] is False
    assert not (home / "config.yaml").exists()


def test_a_secret_is_removed(home: Path) -> None:
    run(home, "set", "Q_KEY", "first-secret")
    run(home, "set", "OTHER_KEY", "second-secret")
    assert run(home, "unset", "Q_KEY").output == f"Q_KEY is removed from {home}/.env\n"
    assert (home / ".env").read_text() == "OTHER_KEY=second-secret\n"
    assert as_json(home, "unset", "Q_KEY") == {"key": "Q_KEY", "was_set": False, "path": f"{home}/.env"}
    assert "is still set in the environment" in run(home, "unset", "OTHER_KEY", env={"OTHER_KEY": "x"}).stderr


def test_a_repaired_file_names_its_next_fault(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("agent:\n  max_steps: abc\n  bogus: 1\ntools:\n  disabled: 5\n")
    assert "agent.bogus is not a setting" in run(home, "set", "agent.max_steps", "5").stderr
    unset = run(home, "unset", "agent.bogus")
    assert "agent.bogus is not a setting; it is removed" in unset.stdout and "tools.disabled" in unset.stderr
    assert run(home, "set", "tools.disabled", "web_fetch").stderr == ""
    assert isinstance(run(home, "unset", "agent.nothing").exception, ConfigError)


def test_edit_opens_the_editor_and_checks_the_file(home: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf \'ui:\\n  markdown: %s\\n\' "$ANSWER" > "$1"\n')
    editor.chmod(0o755)
    env = {"EDITOR": str(editor), "VISUAL": str(editor)}
    assert "is fine" in run(home, "edit", env={**env, "ANSWER": "no"}).output
    broken = run(home, "edit", env={**env, "ANSWER": "perhaps"}).exception
    assert isinstance(broken, ConfigError) and "line 2" in broken.message


def test_what_every_chat_would_refuse_is_not_set_and_is_named_by_its_line(home: Path) -> None:
    for key, value in (
        ("approval.deny", "foo bar"),
        ("confirm.actions", "terminal(x)"),
        ("sandbox.backend", "ssh"),
        ("tools.disabled", "teminal"),
        ("tools.toolsets", "fles"),
        ("tools.workspace", str(home / "nowhere")),
    ):
        refused = run(home, "set", key, value)
        assert isinstance(refused.exception, ConfigError) and value in refused.exception.message, key
    assert not (home / "config.yaml").exists()
    assert "did you mean terminal" in str(run(home, "set", "tools.disabled", "teminal").exception)
    for key, value in (("tools.disabled", "web_fetch"), ("tools.workspace", str(home))):
        assert run(home, "set", key, value).exit_code == 0
    (home / "config.yaml").write_text("approval:\n  allow: []\n  deny: [web_fetch, foo bar]\n")
    wrong = run(home, "list").exception
    assert isinstance(wrong, ConfigError) and wrong.message.startswith("config.yaml line 3: approval.deny is")


def test_a_password_in_an_address_is_not_repeated_by_an_error(home: Path) -> None:
    refused = run(home, "set", "model.base_url", "htp://me:hunter2@host/v1")
    assert isinstance(refused.exception, ConfigError) and "hunter2" not in refused.exception.message
    home.mkdir()
    (home / "config.yaml").write_text("store:\n  url: mysql://me:hunter2@host/d\n")
    wrong = run(home, "list").exception
    assert isinstance(wrong, ConfigError) and "hunter2" not in wrong.message
