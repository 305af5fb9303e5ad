"""`whet model` against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from whet.cli.model import model
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError, ProviderError
from whet_lab.practice.server import PracticeServer


def run(home: Path, *arguments: str, **env: str) -> Result:
    return CliRunner().invoke(model, arguments, obj=Home(home), env={"COLUMNS": "80", **env})


def as_json(home: Path, *arguments: str, **env: str) -> Any:
    result = run(home, *arguments, "--json", **env)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_show_says_which_and_why(home: Path) -> None:
    run(home, "set", "gpt-4.1", "--provider", "openai")
    output = run(home, "show", OPENAI_API_KEY="sk-0123456789012345678").output
    assert "gpt-4.1  (config.yaml line 3)" in output
    assert "window    1,047,576 tokens" in output
    assert "input $2, output $8" in output
    facts = as_json(home, "show", OPENAI_API_KEY="sk-0123456789012345678", WHET_MODEL_MODEL="gpt-x")
    assert facts["model"]["model"] == "gpt-x"
    assert facts["origins"]["model"] == "environment WHET_MODEL_MODEL"


def test_without_a_model_the_error_says_what_to_set(home: Path) -> None:
    for command in ("show", "list"):
        error = run(home, command, GROQ_API_KEY="gsk").exception
        assert isinstance(error, ConfigError)
        assert "whet config set model.provider groq" in error.message


def test_list_asks_the_server_and_marks_the_current(home: Path) -> None:
    with PracticeServer() as server:
        env = {"WHET_MODEL_BASE_URL": server.base_url, "WHET_MODEL_PROVIDER": "practice"}
        names = as_json(home, "list", **env)["models"]
        assert names
        output = run(home, "list", WHET_MODEL_MODEL=names[0], **env).output
        assert f"* {names[0]}" in output.splitlines()
    error = run(home, "list", **env).exception
    assert isinstance(error, ProviderError)
    assert "Traceback" not in error.message


def test_set_saves_and_warns_about_the_environment(home: Path) -> None:
    result = run(home, "set", "some/model:free", WHET_MODEL_MODEL="other")
    assert "overrides it" in result.stderr
    assert load(Home(home), environ={}).settings.model.model == "some/model:free"
    error = run(home, "set", "x", "--provider", "openay").exception
    assert isinstance(error, ConfigError) and "openai" in error.hint


def test_a_model_without_a_name_is_refused(home: Path) -> None:
    error = run(home, "set", " ").exception
    assert isinstance(error, ConfigError) and "a model has a name" in error.message
    assert not (home / "config.yaml").exists()
