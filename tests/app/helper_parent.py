"""A program that runs one turn of a new session: FOLDER URL TEXT. Writes its process and session id."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.app.helper_runs import program
from whet.agent.loop import run_turn
from whet.contract.events import Event


async def main(folder: Path, base_url: str, text: str) -> None:
    """Run the turn to its end, or until something kills the program."""
    async with program(folder, base_url) as app:
        session = await app.new_session()
        (folder / "pid").write_text(str(os.getpid()))
        (folder / "session").write_text(session.id)
        await run_turn(session, session.user_message(text), _ignore)


def _ignore(event: Event) -> None:
    del event


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
