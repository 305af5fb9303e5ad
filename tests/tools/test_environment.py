"""The environment of a command holds no secrets and nothing that waits for a person."""

from __future__ import annotations

import pytest

from whet.tools.shell import command_environment


def test_secrets_of_the_environment_are_withheld() -> None:
    source = {
        **{
            name: "secret"
            for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD")
        },
        **{
            name: "secret"
            for name in ("PGPASSWORD", "MYSQL_PWD", "TOKEN", "my_app_secret", "STRIPE_KEY", "GH_PAT")
        },
        **{
            name: "secret"
            for name in ("OPENAI_API_KEY_2", "GEMINI_API_KEYS", "AZURE_CREDENTIALS", "GH_TOKEN2", "SECRETS")
        },
        **{
            name: "plain"
            for name in ("PATH", "HOME", "PWD", "OLDPWD", "MAX_TOKENS", "KEYBOARD", "SSH_AUTH_SOCK")
        },
    }
    made = command_environment(source)
    assert [name for name, value in made.items() if value == "secret"] == []
    assert {name for name, value in made.items() if value == "plain"} == {
        name for name, value in source.items() if value == "plain"
    }
    assert command_environment(source, ["GITHUB_TOKEN"])["GITHUB_TOKEN"] == "secret"
    assert (made["GIT_TERMINAL_PROMPT"], made["PAGER"], made["TERM"]) == ("0", "cat", "dumb")
    assert command_environment(source, pty=True)["TERM"] == "xterm-256color"


@pytest.mark.parametrize(("given", "first"), [("", 0), ("2", 2), ("x", 0), ("²", 0), ("-1", 0)])
def test_git_is_told_after_what_is_set_to_run_nothing_of_a_repository(given: str, first: int) -> None:
    made = command_environment({"GIT_CONFIG_COUNT": given, "GIT_CONFIG_KEY_1": "user.name"})
    assert made["GIT_CONFIG_COUNT"] == str(first + 5)
    assert (made[f"GIT_CONFIG_KEY_{first}"], made[f"GIT_CONFIG_VALUE_{first}"]) == ("core.fsmonitor", "false")
    assert made[f"GIT_CONFIG_KEY_{first + 4}"] == "core.alternateRefsCommand"
    assert f"GIT_CONFIG_KEY_{first + 5}" not in made
    assert first == 0 or made["GIT_CONFIG_KEY_1"] == "user.name"
