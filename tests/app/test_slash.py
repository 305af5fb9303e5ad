"""Commands are found by name and alias, and a taken name stays with its owner."""

from __future__ import annotations

import asyncio

import pytest

from whet.app.conversations.slash import Commands, LateHandler, SlashCommand, parse, unescape
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.contract.errors import NotFound, WhetError


async def note(chat: list[str], rest: str) -> None:
    chat.append(rest)


def registry() -> Commands[list[str]]:
    commands: Commands[list[str]] = Commands()
    commands.add(SlashCommand("help", "Show this.", note, aliases=("h",)))
    commands.add(SlashCommand("usage", "Show usage.", note))
    return commands


def test_a_command_is_found_by_name_and_alias_and_runs() -> None:
    commands = registry()
    texts: list[str] = []
    asyncio.run(commands.get("h").run(texts, "me"))
    assert texts == ["me"]
    assert [command.name for command in commands] == ["help", "usage"]


@pytest.mark.parametrize("name", ["help", "h"])
def test_a_taken_name_can_not_be_replaced(name: str) -> None:
    commands = registry()
    with pytest.raises(WhetError, match="taken by /help"):
        commands.add(SlashCommand("mine", "Mine.", note, aliases=(name,)))
    with pytest.raises(NotFound):
        commands.get("mine")


@pytest.mark.parametrize("name", ["", "Big", "a b", "1x", "x" * 40])
def test_an_unusable_name_is_refused(name: str) -> None:
    with pytest.raises(WhetError):
        registry().add(SlashCommand(name, "x", note))


def test_what_is_a_command_and_what_a_message() -> None:
    assert parse("/model  gpt-x ") == ("model", "gpt-x")
    assert parse("/HELP") == ("help", "")
    for message in ("hello", "//help", "/usr/bin/python is broken", "/two\nlines"):
        assert parse(message) is None
    assert unescape("//help me") == "/help me"
    assert unescape("hello") == "hello"


def test_every_row_of_the_table_names_a_handler() -> None:
    for command in SLASH_COMMANDS:
        assert isinstance(command.run, LateHandler)
        assert asyncio.iscoroutinefunction(command.run.load()), command.name
