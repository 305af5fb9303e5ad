"""Show an engine the whole conversation if the live list does not tell it which messages it has stored.

An engine that stores messages and counts rows can't find out after a restart, from the list that a compaction
left, which messages it stored before.
"""

from __future__ import annotations

from whet.context.engine_runner import EngineRunner, filter_keywords, optional_hook
from whet.context.rows import engine_row
from whet.contract.context_engine import ChatRow
from whet.store import compactions
from whet.store.transcript import Transcript

_MAX_ROWS = 4_000


async def show_whole(log: Transcript, runner: EngineRunner) -> None:
    """Show an engine with tools the whole conversation if it is behind, so that it can compare its stored
    messages.

    The messages are passed with the call of a tool that does not exist, which does nothing else. Engines have
    no hook for this, and at `should_compress_preflight` hermes-lcm before 0.16 stores nothing.
    """
    hook = optional_hook(runner.engine, "handle_tool_call")
    if hook is None or not (rows := await whole_rows(log, runner)):
        return
    if keywords := filter_keywords(hook, {"messages": rows}):
        await runner.run("handle_tool_call", lambda: hook("", {}, **keywords), runner.deadlines.compress_s)


async def whole_rows(log: Transcript, runner: EngineRunner) -> list[ChatRow]:
    """Return the whole conversation as rows. Returns an empty list if the engine has no tools, is not behind,
    or the conversation is too long."""
    if not runner.is_behind or not runner.tools:
        return []
    messages = await compactions.list_whole(log, _MAX_ROWS)
    runner.is_behind = [seq for seq, _ in messages] != list(log.live.seqs)
    if not runner.is_behind:
        return []
    return [{**engine_row(message), "_seq": seq} for seq, message in messages]
