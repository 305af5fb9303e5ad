"""The slash commands that an editor offers: few lines each, on one session between its turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from whet.agent.session import Session
from whet.app.hosted import Hosted
from whet.contract.errors import WhetError
from whet.contract.events import Emit

Run = Callable[[Hosted, Session, str, Emit], Awaitable[str]]
_COMPACTED = {
    "compacted": "The context was compacted.",
    "unchanged": "The context stays as it is.",
    "nothing": "Nothing to compress yet.",
}


class Command(msgspec.Struct, frozen=True):
    """A command: what it does, what may follow it (empty: nothing), and doing it; that gives what is said."""

    about: str
    hint: str
    run: Run


async def _compress(hosted: Hosted, session: Session, rest: str, emit: Emit) -> str:
    return _COMPACTED[await session.context.compact(rest, emit)]


async def _context(hosted: Hosted, session: Session, rest: str, emit: Emit) -> str:
    status = await session.context.status()
    share = status.used_tokens / max(status.window_tokens, 1)
    return (
        f"{share:.0%} of {status.window_tokens:,} tokens, {status.messages} messages; engine {status.engine}."
    )


async def _usage(hosted: Hosted, session: Session, rest: str, emit: Emit) -> str:
    used = session.usage
    cost = "" if used.cost_usd is None else f", {used.cost_usd:.4f} USD"
    return f"{used.total_tokens:,} tokens in this session, {used.cache_hit_ratio:.0%} from the cache{cost}."


async def _undo(hosted: Hosted, session: Session, rest: str, emit: Emit) -> str:
    said = await session.log.undo_last_turn()
    return "There is nothing to undo." if said is None else f"The last turn is undone. You had said: {said}"


async def _refine(hosted: Hosted, session: Session, rest: str, emit: Emit) -> str:
    await hosted.app.reviews.ask(session.id, rest)
    hosted.app.reviews.kick()
    return "A review of this session is queued: what is worth keeping becomes memory and skills."


COMMANDS: Mapping[str, Command] = {
    "compress": Command("Make the context smaller; what follows is what to keep.", "what to keep", _compress),
    "context": Command("Say how full the context is.", "", _context),
    "refine": Command("Review this session now.", "what to look for", _refine),
    "undo": Command("Take the last turn back; files stay as they are.", "", _undo),
    "usage": Command("Say what this session has used.", "", _usage),
}


def parse(text: str) -> tuple[Command, str] | None:
    """Find the command that a prompt is; None where it is a message."""
    if not text.startswith("/"):
        return None
    name, _, rest = text[1:].strip().partition(" ")
    command = COMMANDS.get(name)
    return None if command is None else (command, rest.strip())


async def run(hosted: Hosted, session_id: str, command: tuple[Command, str], emit: Emit) -> str:
    """Run a command between turns, and give what it says; an error is said too."""
    try:
        async with hosted.using(session_id) as session:
            return await command[0].run(hosted, session, command[1], emit)
    except WhetError as error:
        return f"{error.message}. {error.hint}".strip()


def available() -> list[AvailableCommand]:
    """List them as the protocol does."""
    return [
        AvailableCommand(
            name=name,
            description=command.about,
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint=command.hint))
            if command.hint
            else None,
        )
        for name, command in COMMANDS.items()
    ]
