"""The options that say which model answers, the same for every command that asks one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = {
    "provider": "model.provider",
    "base_url": "model.base_url",
    "model": "model.model",
    "api_key_env": "model.api_key_env",
    "format": "model.format",
}
_OPTIONS = (
    click.option("--provider", help="The provider's name."),
    click.option("--base-url", help="The API's root."),
    click.option("--model", help="The model's name."),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the key."),
    click.option("--format", metavar="FORMAT", help="chat_completions, anthropic_messages or responses."),
)
approvals_option = click.option(
    "--approvals", type=click.Choice(["ask", "auto", "deny"]), help="What runs without a question."
)


def model_options(command: F) -> F:
    """Add the options to a command, which gets their values by name; None where one was not given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def model_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings that the options stand for."""
    return {key: given[name] for name, key in _SETTINGS.items()}
