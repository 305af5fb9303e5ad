"""/goal in the chat: pursue a goal beside the input, show the last one, stop it, go on with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from whet.app.goal_words import USAGE, parse_goal
from whet.app.slash import SlashCommand
from whet.contract.errors import WhetError

if TYPE_CHECKING:
    from whet.app.goals import GoalWish
    from whet.cli.commands import ChatControl
    from whet.contract.events import Event
    from whet.store.goals import GoalRow


def goal_commands() -> list[SlashCommand[ChatControl]]:
    """Give /goal."""
    text = "Work on something until a check proves that it is done."
    return [SlashCommand("goal", text, _goal, "TEXT [--verify CMD]")]


async def _goal(chat: ChatControl, rest: str) -> None:
    if rest in ("", "show"):
        return await _show(chat)
    if rest == "stop":
        return await _stop(chat)
    if rest == "resume":
        return await _pursue(chat, await _last(chat))
    return await _pursue(chat, parse_goal(rest))


async def _last(chat: ChatControl) -> GoalRow:
    from whet.store import goals  # noqa: PLC0415 - few chats have goals

    return await chat.app.database.read(lambda db: goals.get(db, ""))


async def _pursue(chat: ChatControl, what: GoalWish | GoalRow) -> None:
    from whet.app.goals import GoalRunner, GoalWish, report  # noqa: PLC0415 - few chats have goals
    from whet.cli.goal import lines  # noqa: PLC0415 - the same
    from whet.store import goals  # noqa: PLC0415 - the same

    if not isinstance(what, GoalWish) and what.state not in goals.OPEN:
        raise WhetError(f"this goal has ended: {what.state}", hint=USAGE)
    first = GoalRunner(chat.app, lambda event: None)
    if isinstance(what, GoalWish):
        row, session = await first.start(what)
    else:
        row, session = what, await first.reopen(what)
    await chat.switch_to(session)

    async def work(emit: Callable[[Event], None]) -> None:
        ended = await GoalRunner(chat.app, emit).pursue(row, session)
        done = await chat.app.database.read(lambda db: report(db, ended))
        for line in lines(done):
            chat.say(line, "green" if ended.state == "achieved" else "yellow")

    doing: Callable[[Callable[[Event], None]], Awaitable[None]] = work
    chat.work("pursuing the goal", doing)


async def _show(chat: ChatControl) -> None:
    from whet.app.goals import report  # noqa: PLC0415 - few chats have goals
    from whet.cli.goal import lines  # noqa: PLC0415 - the same

    found = await _last(chat)
    done = await chat.app.database.read(lambda db: report(db, found))
    for line in lines(done, whole=True):
        chat.say(line)


async def _stop(chat: ChatControl) -> None:
    from whet.clock import iso  # noqa: PLC0415 - with the store's goals
    from whet.store import goals  # noqa: PLC0415 - few chats have goals

    found, at = await _last(chat), iso(chat.app.clock.now())
    ended = await chat.app.database.write(
        lambda db: goals.end(db, found.id, "cancelled", "stopped by hand", at)
    )
    chat.say("goal cancelled" if ended else f"this goal has ended: {found.state}")
