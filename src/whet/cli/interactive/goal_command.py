"""/goal in the chat: pursue a goal, or show, stop or resume the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from whet.contract.errors import WhetError
from whet.contract.events import show_nothing
from whet.goals.text import USAGE, parse_goal

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.contract.events import Event
    from whet.goals.text import GoalWish
    from whet.store.goals import GoalRow


async def handle_goal(chat: ChatControl, argument: str) -> None:
    """Pursue a goal, or show, stop or resume the last one."""
    if argument in ("", "show"):
        return await _show(chat)
    if argument == "stop":
        return await _stop(chat)
    if argument == "resume":
        return await _pursue(chat, await _read_last(chat))
    return await _pursue(chat, parse_goal(argument))


async def _read_last(chat: ChatControl) -> GoalRow:
    from whet.store import goals  # noqa: PLC0415 - few chats have goals

    return await chat.services.database.read(lambda db: goals.get(db, ""))


async def _pursue(chat: ChatControl, target: GoalWish | GoalRow) -> None:
    from whet.cli.goal import report_lines  # noqa: PLC0415 - the same
    from whet.goals.pursuit import GoalRunner, report  # noqa: PLC0415 - few chats have goals
    from whet.goals.text import GoalWish  # noqa: PLC0415 - as above
    from whet.store import goals  # noqa: PLC0415 - the same

    if not isinstance(target, GoalWish) and target.state not in goals.OPEN:
        raise WhetError(f"this goal has ended: {target.state}", hint=USAGE)
    runner = GoalRunner(chat.opener, show_nothing)
    if isinstance(target, GoalWish):
        row, session = await runner.start(target)
    else:
        row, session = target, await runner.reopen(target)
    await chat.switch_to(session)

    async def pursue(emit: Callable[[Event], None]) -> None:
        goal = await GoalRunner(chat.opener, emit).pursue(row, session)
        goal_report = await chat.services.database.read(lambda db: report(db, goal))
        for line in report_lines(goal_report):
            chat.say(line, "green" if goal.state == "achieved" else "yellow")

    chat.start_task("pursuing the goal", pursue)


async def _show(chat: ChatControl) -> None:
    from whet.cli.goal import report_lines  # noqa: PLC0415 - the same
    from whet.goals.pursuit import report  # noqa: PLC0415 - few chats have goals

    row = await _read_last(chat)
    goal_report = await chat.services.database.read(lambda db: report(db, row))
    for line in report_lines(goal_report, full=True):
        chat.say(line)


async def _stop(chat: ChatControl) -> None:
    from whet.clock import iso  # noqa: PLC0415 - with the store's goals
    from whet.store import goals  # noqa: PLC0415 - few chats have goals

    row, at = await _read_last(chat), iso(chat.services.clock.now())
    ended = await chat.services.database.write(
        lambda db: goals.end_goal(db, row.id, "cancelled", "stopped by hand", at)
    )
    chat.say("goal cancelled" if ended else f"this goal has ended: {row.state}")
