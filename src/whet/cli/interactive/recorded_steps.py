"""Read the recorded file changes of a chat's session, for /rewind, /diff and the list of rewind points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.rewind.rewinding import Rewinding


async def changed_paths(chat: ChatControl) -> dict[int, int]:
    """Return the number of changed paths by turn. A fork has no recorded steps of the turns that it
    copied."""
    changed: dict[int, int] = {}
    for step in await open_rewinding(chat).steps():
        if step.kind == "step":
            changed[step.turn] = changed.get(step.turn, 0) + step.paths
    return changed


def open_rewinding(chat: ChatControl) -> Rewinding:
    """Return the object that rewinds the chat's session."""
    from whet.rewind.rewinding import Rewinding  # noqa: PLC0415 - the chat starts without it

    return Rewinding(chat.services.recordings.get(), chat.session.log, chat.services.workspace)
