"""Words of other agents lead to what does the same here, and the tables name only what exists."""

from __future__ import annotations

import re

import click
import pytest

from tests.support import each
from whet.app.conversations.slash import Commands
from whet.app.peer_words import SHELL_WORDS, SLASH_WORDS, find_meaning
from whet.cli.group import whet
from whet.cli.interactive.chat_control import ChatControl
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.schema import Settings
from whet.contract.errors import NotFound


def slash_commands() -> Commands[ChatControl]:
    commands: Commands[ChatControl] = Commands()
    for command in SLASH_COMMANDS:
        commands.add(command)
    return commands


@each("hint", [*SHELL_WORDS.values(), *SLASH_WORDS.values()])
def test_a_hint_names_commands_and_settings_that_exist(hint: str) -> None:
    for line in re.findall(r"`whet ([a-z][^`]*)`", hint):
        command: click.Command = whet
        words = line.split()
        while words and isinstance(command, click.Group) and words[0].islower():
            subcommand = command.get_command(click.Context(command), words.pop(0))
            assert subcommand is not None, line
            command = subcommand
        if line.startswith("config set"):
            section, _, key = words[0].partition(".")
            assert hasattr(getattr(Settings(), section), key)
    if hint.startswith("/"):
        assert hint[1:] in slash_commands()


@pytest.mark.parametrize("table", [SHELL_WORDS, SLASH_WORDS])
def test_a_word_is_listed_once(table: dict[str, str]) -> None:
    words = " ".join(table).split()
    assert len(words) == len(set(words))


def test_no_word_of_a_table_is_a_command() -> None:
    assert not set(" ".join(SHELL_WORDS).split()) & set(whet.list_commands(click.Context(whet)))
    assert not [word for word in " ".join(SLASH_WORDS).split() if word in slash_commands()]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("init", "ask for it: write an AGENTS.md that describes this repository"),
        ("agents", "did you mean /jobs?"),
        ("login", "`whet model login` does that, in another terminal"),
        ("titel", "did you mean /title?"),
        ("zzzz", "/help lists the commands"),
    ],
)
def test_meaning_comes_before_spelling(name: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        slash_commands().get(name)
    assert caught.value.hint == hint


def test_a_command_that_a_chat_lacks_is_not_suggested() -> None:
    with pytest.raises(NotFound) as caught:
        Commands[ChatControl]().get("agents")
    assert caught.value.hint == "/help lists the commands"
    assert find_meaning("LOGIN", SHELL_WORDS) == "`whet model login` gets a key"
