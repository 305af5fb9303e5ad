"""/help names every command whole, however narrow the terminal is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.review.rig import bench
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.slash import Commands
from whet.app.conversations.slash_output import CommandReply
from whet.cli.interactive.slash_commands import SLASH_COMMANDS


@pytest.mark.parametrize("columns", [50, 80, 140])
def test_help_is_whole_and_fits(tmp_path: Path, columns: int) -> None:
    async def main() -> str:
        async with bench(tmp_path, []) as b:
            commands = Commands[Any]()
            for command in SLASH_COMMANDS:
                commands.add(command)
            hosted = SessionHost(b.app.sessions, PersonRouter())
            reply = CommandReply(hosted, b.session, commands, b.app.learning.owner_service, columns)
            await reply.run(commands.get("help"), "")
            return "\n".join(reply.lines)

    text, _, rest = asyncio.run(main()).partition("\n\nModes,")
    modes = rest.partition("\n\n")[0].split("\n")[1:]
    assert all(line.startswith("  ") and len(line) < columns for line in modes)
    lines = text.split("\n")
    assert max(map(len, lines)) <= columns and "…" not in text
    words = " ".join(text.split())
    for command in SLASH_COMMANDS:
        assert f"/{command.name} " in words and command.help in words
