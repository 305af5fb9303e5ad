"""The environment of a command holds no secrets and nothing that waits for a person."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from whet.tools.shell import command_environment


def test_secrets_of_the_environment_are_withheld() -> None:
    secret = (
        *(
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "PGPASSWORD",
            "MYSQL_PWD",
        ),
        *("TOKEN", "my_app_secret", "STRIPE_KEY", "GH_PAT", "GPG_PW", "OPENAI_API_KEY_2", "GEMINI_API_KEYS"),
        *("AZURE_CREDENTIALS", "GH_TOKEN2", "SECRETS"),
    )
    plain = ["PATH", "HOME", "PWD", "OLDPWD", "MAX_TOKENS", "KEYBOARD", "SSH_AUTH_SOCK"]
    source = dict.fromkeys(secret, "secret") | dict.fromkeys(plain, "plain")
    texts = command_environment(source)
    assert "secret" not in texts.values()
    assert [name for name, value in texts.items() if value == "plain"] == plain
    assert command_environment(source, ["GITHUB_TOKEN"])["GITHUB_TOKEN"] == "secret"
    assert (texts["GIT_TERMINAL_PROMPT"], texts["PAGER"], texts["TERM"]) == ("0", "cat", "dumb")
    assert command_environment(source, pty=True)["TERM"] == "xterm-256color"


_RANDOM = "x7Kq9Zp2Lm4Vt8Rb1Nc6Wd3Hs5Yg0Jf"


def test_a_secret_is_known_by_its_value_too() -> None:
    source = {
        "DATABASE_URL": "postgres://app:hunter2@db/app",
        "REDIS_URL": "redis://:hunter2@cache:6379/0",
        "PIP_INDEX_URL": "https://__token__:abc@pypi.example/simple",
        "REMOTE": f"https://{_RANDOM}@git.example/app",
        "SLACK": f"https://hooks.slack.com/services/T0AB12CD/B0AB12CD/{_RANDOM[:24]}",
        "STORAGE": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcd==;EndpointSuffix=core",
        "CONNECTION": "host=db user=app password=hunter2",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "OP_SESSION_team": _RANDOM,
        "SESSION": "0123456789abcdef" * 2,
        "BOT": f"123456789:AAF{_RANDOM}z",
        "PEM": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
        "LOGIN": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r_wW1g",
        "npm_config__authToken": "abc",
        "DB_PASS": "hunter2",
        "SSHPASS": "hunter2",
        "SMTP_CREDS": "me:hunter2",
        "ADMIN_PIN": "4711",
        "HEADER": "Authorization: Bearer abc.def.ghi",
        "CURL_OPTIONS": "-s -u me:hunter2",
        "MACHINE": "machine x login me password hunter2",
        "PING": "https://hc-ping.example/6f9619ff-8b86-d011-b42d-00cf4fc964ff?a=1",
        "CLIENTSECRET": "hunter2",
        "clientSecret": "hunter2",
        "KEYPASS": "hunter2",
        "VAULT": "hvs.CAESIJabcdefghijKLMN0pqRst",
        "TEAM": "https://hooks.slack.com/services/T000/B000/XXXXXXXXXXXXXXXXXXXXXXXX",
        "CHAT": "https://discord.com/api/webhooks/123456789012345678/abcdefghijklmnopqrstuvwxyz",
        "CATCH": "https://hooks.zapier.com/hooks/catch/1234567/abcdefg/",
        "TRIGGER": "https://maker.ifttt.com/trigger/x/with/key/dBcdEfGhIjKlMnOpQrStUv",
        "SHARED": "https://x.example/c?sig=abcd&se=2026",
    }
    passed = command_environment(source)
    assert [name for name in source if name in passed] == []
    assert command_environment(source, ["DB_PASS"])["DB_PASS"] == "hunter2"


def test_no_file_that_a_shell_runs_first_brings_secrets_back(tmp_path: Path) -> None:
    """https://github.com/openai/codex/issues/14774"""
    (tmp_path / "rc").write_text("export DEPLOY_TOKEN=hunter2\necho noise\n")
    first = {name: str(tmp_path / "rc") for name in ("BASH_ENV", "ENV")}
    source = {"PATH": os.environ["PATH"], "DEPLOY_TOKEN": "hunter2", **first}
    for shell in (["bash", "-c"], ["sh", "-c"], ["sh", "-ic"]):
        ran = subprocess.run(
            [*shell, "env; env"], env=command_environment(source), capture_output=True, text=True, check=True
        )
        assert "hunter2" not in ran.stdout and "noise" not in ran.stdout, shell
    assert command_environment(source, ["BASH_ENV"])["BASH_ENV"] == first["BASH_ENV"]


def test_what_builds_need_is_passed() -> None:
    source = {
        "PATH": "/usr/bin:/root/.nvm/versions/node/v18.2.1/bin",
        "LS_COLORS": "rs=0:di=01;34:*.tar=01;31:*.key=00",
        "TERM_SESSION_ID": "w0t0p0:6F9619FF-8B86-D011-B42D-00CF4FC964FF",
        "GITHUB_SHA": "0123456789" * 4,
        "PYTHON_SHA256": "0123456789abcdef" * 4,
        "NIX_CFLAGS": "-isystem /nix/store/0c5b4jvz9rlqgk2p8yx1n3d6wfhas7im-glibc-2.38/include",
        "JAVA_OPTS": "-Xmx2g -Dfile.encoding=UTF-8",
        "CI_URL": "https://ci.example.com/build/12345",
        "DOCS": "https://docs.example.com/keyboards/layouts/hooks",
        "monkeyPath": "/usr/lib",
        "REPO": "git@github.com:me/repo2.git",
        "IMAGE": "registry.example.com/team/app:1.2.3-20261128",
        "ARN": "arn:aws:iam::123456789012:role/Role2",
        "GIT_ASKPASS": "/usr/bin/ask",
        "COMPASS": "north",
        "RSYNC_OPTIONS": "-u --delete",
        "MODE": "basic",
        "PROMPT": "user: ",
    }
    passed = command_environment(source)
    assert {name: passed[name] for name in source if name in passed} == source


@pytest.mark.parametrize(("given", "first"), [("", 0), ("2", 2), ("x", 0), ("²", 0), ("-1", 0)])
def test_git_is_told_after_what_is_set_to_run_nothing_of_a_repository(given: str, first: int) -> None:
    texts = command_environment({"GIT_CONFIG_COUNT": given, "GIT_CONFIG_KEY_1": "user.name"})
    assert texts["GIT_CONFIG_COUNT"] == str(first + 5)
    assert (texts[f"GIT_CONFIG_KEY_{first}"], texts[f"GIT_CONFIG_VALUE_{first}"]) == (
        "core.fsmonitor",
        "false",
    )
    assert texts[f"GIT_CONFIG_KEY_{first + 4}"] == "core.alternateRefsCommand"
    assert f"GIT_CONFIG_KEY_{first + 5}" not in texts
    assert first == 0 or texts["GIT_CONFIG_KEY_1"] == "user.name"


def test_git_reads_its_settings_without_the_one_that_is_withheld(tmp_path: Path) -> None:
    source = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(tmp_path),
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "http.extraheader",
        "GIT_CONFIG_VALUE_0": "Authorization: Basic c2VjcmV0LXRva2VuLWFiY2RlZg==",
        "GIT_CONFIG_KEY_1": "user.name",
        "GIT_CONFIG_VALUE_1": "Ann",
    }
    texts = command_environment(source)
    assert "Basic" not in str(texts)
    shown = subprocess.run(
        ["git", "config", "--get-regexp", "user.name|http"],
        cwd=tmp_path,
        env=texts,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "user.name Ann\n"
