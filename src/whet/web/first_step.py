"""Run a coroutine at once up to its first wait, and the remainder as a task.

A call that never waits then needs neither a task nor another pass of the loop. Python has this from 3.12 on
(eager tasks). Until its first wait such a coroutine has no current task, so it must not use
`asyncio.timeout`, a task group or anyio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any


def run_first_step(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> asyncio.Task[None] | None:
    """Run `work` up to its first wait. Returns the task that runs the remainder, or None if it has ended.

    Raises the exceptions that it raises before its first wait.
    """
    context = copy_context()
    try:
        waited_for = context.run(work.send, None)
    except StopIteration:
        return None
    return loop.create_task(_run_rest(work, waited_for), context=context)


async def _run_rest(work: Coroutine[Any, Any, None], waited_for: Any) -> None:
    await _drive(work, waited_for)


@coroutine
def _drive(work: Coroutine[Any, Any, None], waited_for: Any) -> Generator[Any, Any, None]:
    """Wait for `waited_for` in place of the coroutine, and pass each result and each cancellation to it."""
    while True:
        try:
            result = yield waited_for
        except BaseException as error:  # noqa: BLE001 each goes to the coroutine
            step, value = work.throw, error
        else:
            step, value = work.send, result
        try:
            waited_for = step(value)
        except StopIteration:
            return
