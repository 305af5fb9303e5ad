"""Settings from file, environment and flags: who wins, where it stands, what a mistake reads like."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from whet.config.load import LoadedSettings, load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import ConfigError


def loaded(
    home: Path, text: str | None = None, environ: Mapping[str, str] = {}, **flags: object
) -> LoadedSettings:
    if text is not None:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(text, "utf-8")
    return load(Home(home), {key.replace("__", "."): value for key, value in flags.items()}, environ=environ)


def wrong(
    home: Path, text: str | None = None, environ: Mapping[str, str] = {}, **flags: object
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(home, text, environ, **flags)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_without_a_file_every_setting_has_its_default(home: Path) -> None:
    result = loaded(home)
    assert result.settings == Settings()
    assert set(result.origins.values()) == {"default"}
    assert not home.exists()


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a comment\n", "---\n", "model:\n", "model: ~\ntools: {}\n"]
)
def test_an_empty_file_or_section_changes_nothing(home: Path, text: str) -> None:
    assert loaded(home, text).settings == Settings()


def test_flags_beat_the_environment_which_beats_the_file(home: Path) -> None:
    text = "# mine\nmodel:\n  model: from-file\n  provider: openai\n  timeout_s: 5\nui:\n  markdown: off\n"
    result = loaded(
        home,
        text,
        {"WHET_MODEL_MODEL": "from-env", "WHET_MODEL_TIMEOUT_S": "7.5"},
        model__model="from-flag",
        model__provider=None,
    )
    assert result.settings.model.model == "from-flag"
    assert result.settings.model.timeout_s == 7.5
    assert result.settings.model.provider == "openai"
    assert result.settings.ui.markdown is False
    assert result.origins["model.model"] == "flag --model"
    assert result.origins["model.timeout_s"] == "environment WHET_MODEL_TIMEOUT_S"
    assert result.origins["model.provider"] == "config.yaml line 4"
    assert result.origins["model.max_retries"] == "default"
    assert [(s.value, s.origin) for s in result.overridden["model.model"]] == [
        ("from-env", "environment WHET_MODEL_MODEL"),
        ("from-file", "config.yaml line 3"),
        ("", "default"),
    ]


SERVER_AND_MODEL = "model:\n  {}\n  model: m1\n"


@pytest.mark.parametrize("server", ["provider: openai", "base_url: http://127.0.0.1:9/v1"])
def test_a_provider_of_a_stronger_layer_takes_its_own_default_model(home: Path, server: str) -> None:
    flagged = loaded(home, SERVER_AND_MODEL.format(server), model__provider="practice")
    assert flagged.settings.model.model == ""
    assert any("m1" in warning and "practice" in warning for warning in flagged.warnings)
    named = loaded(home, environ={"WHET_MODEL_PROVIDER": "practice", "WHET_MODEL_MODEL": "m2"})
    assert named.settings.model.model == "m2"


@pytest.mark.parametrize("server", ["provider: practice", "timeout_s: 5"])
def test_a_model_stays_that_was_set_for_the_same_provider_or_for_any(home: Path, server: str) -> None:
    result = loaded(home, SERVER_AND_MODEL.format(server), model__provider="practice")
    assert (result.settings.model.model, result.warnings) == ("m1", ())


def test_lists_come_from_yaml_or_commas_and_rules_keep_their_commas(home: Path) -> None:
    result = loaded(
        home,
        "tools:\n  toolsets: [file, terminal]\n  disabled:\n    - web_fetch\n    - todo\n",
        {"WHET_APPROVAL_DENY": "terminal(rm {a,b}, -rf), patch"},
        approval__mode="deny",
        approval__allow=["terminal(git status, *)"],
    )
    assert result.settings.tools.toolsets == ("file", "terminal")
    assert result.settings.tools.disabled == ("web_fetch", "todo")
    assert result.settings.approval.deny == ("terminal(rm {a,b}, -rf)", "patch")
    assert result.settings.approval.allow == ("terminal(git status, *)",)
    assert result.origins["approval.mode"] == "flag --approvals"


def test_a_value_is_its_text_whatever_yaml_would_make_of_it(home: Path) -> None:
    result = loaded(home, "model:\n  model: 4.10\n  provider: no\n  max_retries: '3'\n  base_url: null\n")
    assert result.settings.model.model == "4.10"
    assert result.settings.model.provider == "no"
    assert result.settings.model.max_retries == 3
    assert result.settings.model.base_url == ""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("model:\n  provider: [openai\n", ("config.yaml line", "column", "not valid YAML")),
        ("model:\n  provider: a: b\n", ("line 2, column 14", "not valid YAML")),
        ("model:\n\tprovider: a\n", ("line 2, column 1", "not valid YAML")),
        ("model:\n  provider: a\n  provider: b\n", ("line 3", "model.provider", "already set in line 2")),
        ("- model\n", ("line 1", "sections")),
        ("just text\n", ("line 1", "sections")),
        ("model: gpt\n", ("line 1", "`model` must be a section")),
        ("model:\n  provider: {a: b}\n", ("line 2", "`model.provider`")),
        ("tools:\n  toolsets: [[a]]\n", ("line 2", "`tools.toolsets`", "nothing nested")),
        ("tools:\n  toolsets: file\n", ("line 2", "tools.toolsets is 'file'", "a list such as [a, b]")),
        ("model:\n  provider: [a]\n", ("line 2", "model.provider is '[a]'", "text")),
        ("model:\n  format: xml\n", ("line 2", "model.format is 'xml'", "anthropic_messages", "auto")),
        ("model:\n  max_retries: many\n", ("line 2", "'many'", "a whole number, at least 0")),
        ("model:\n  max_retries: -1\n", ("line 2", "'-1'", "at least 0")),
        ("agent:\n  max_steps: 0\n", ("line 2", "'0'", "at least 1")),
        ("model:\n  timeout_s: 0\n", ("line 2", "more than 0")),
        ("model:\n  timeout_s: nan\n", ("line 2", "a number")),
        ("ui:\n  markdown: maybe\n", ("line 2", "true or false")),
        ("a: 1\n---\nb: 2\n", ("line 2", "second document")),
        ("model:\n  model: !!python/name:os.system x\n", ("line 2", "tags")),
        ("? [a, b]\n: c\n", ("line 1", "plain word")),
        ("model:\n  model: a\0b\n", ("not valid YAML",)),
    ],
)
def test_a_broken_file_is_named_with_its_line(home: Path, text: str, parts: tuple[str, ...]) -> None:
    error = wrong(home, text)
    for part in parts:
        assert part in error.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("model:\n  modle: x\n", "did you mean model.model?"),
        ("modle:\n  model: x\n", "did you mean model?"),
        ("agent:\n  timeout: 3\n", "did you mean agent.turn_timeout_s?"),
        ("model:\n  zzzzzz: x\n", "whet config list shows every key"),
    ],
)
def test_an_unknown_key_offers_the_nearest(home: Path, text: str, hint: str) -> None:
    error = wrong(home, text)
    assert "is not a setting" in error.message and "line" in error.message
    assert error.hint == hint


def test_a_key_in_the_settings_file_is_sent_to_env_and_not_shown(home: Path) -> None:
    error = wrong(home, "model:\n  api_key: sk-verysecretverysecret\n")
    assert ".env" in error.hint
    assert "verysecret" not in error.message + error.hint


def test_wrong_values_in_environment_and_flags_name_their_origin(home: Path) -> None:
    error = wrong(home, None, {"WHET_UI_MARKDOWN": "maybe"})
    assert error.message.startswith("environment WHET_UI_MARKDOWN: ui.markdown is 'maybe'")
    error = wrong(home, None, {}, approval__mode="yolo")
    assert error.message.startswith("flag --approvals: approval.mode is 'yolo'; allowed: ask, auto, deny")
    error = wrong(home, None, {}, model__modle="x")
    assert error.hint == "did you mean model.model?"


def test_an_overridden_mistake_is_still_named(home: Path) -> None:
    error = wrong(home, "agent:\n  max_steps: lots\n", {"WHET_AGENT_MAX_STEPS": "3"})
    assert "config.yaml line 2" in error.message


def test_a_variable_that_is_no_setting_is_a_warning(home: Path) -> None:
    result = loaded(home, None, {"WHET_MODEL_MODLE": "x", "WHET_HOME": "/x", "WHET_OTHER": "y"})
    assert result.warnings == (
        "environment WHET_MODEL_MODLE is not a setting; did you mean WHET_MODEL_MODEL?",
    )


def test_bombs_are_refused_before_they_are_expanded(home: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "anchors and aliases" in wrong(home, "\n".join(lines)).message
    assert "nested too deeply" in wrong(home, "[" * 100_000).message
    assert "nested too deeply" in wrong(home, "{a: " * 50_000).message


@pytest.mark.parametrize("aliases", ["{a: b, b: a}", "{a: b, b: org/m}", "{a: b, b: b}"])
def test_an_alias_that_leads_to_another_alias_is_refused(home: Path, aliases: str) -> None:
    error = wrong(home, f"model:\n  model: a\n  aliases: {aliases}\n")
    assert "a leads to b, which is an alias itself (config.yaml line 3)" in error.message


def test_aliases_to_names_of_the_server_resolve_in_one_step(home: Path) -> None:
    text = "model:\n  model: a\n  aliases: {a: org/m, b: org/m, c: c}\n"
    assert loaded(home, text).settings.model.model == "org/m"


def test_files_that_are_no_settings_file(home: Path) -> None:
    home.mkdir()
    config = home / "config.yaml"
    config.write_bytes(b"x: y\n" * 2_000_000)
    assert "bytes, more than" in wrong(home).message
    config.write_bytes(b"model:\n  model: caf\xe9\n")
    assert "line 2 is not UTF-8" in wrong(home).message
    config.write_bytes(b"\xef\xbb\xbfmodel:\n  model: m\n")
    assert loaded(home).settings.model.model == "m"
    config.unlink()
    config.mkdir()
    assert "is a folder" in wrong(home).message
    config.rmdir()
    os.mkfifo(config)
    assert "not a plain file" in wrong(home).message
    config.unlink()
    config.symlink_to(config)
    assert "can't read" in wrong(home).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("")
    (home / "config.yaml").chmod(0)
    assert "Permission denied" in wrong(home).message
