"""Tell what a helper did that gave no answer: its calls and their ends, the files it changed, its last words.

Everything is read from its stored session, so it holds after a kill too.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.contract.texts import plural
from whet.contract.tools import clip
from whet.store import facts, helper_rows, replay, rows, sessions

_MAX_CALLS = 30
_MAX_FILES = 30
_MAX_ARGUMENT_CHARS = 160
_MAX_WORDS_CHARS = 1_500


def close_helper(connection: apsw.Connection, parent: str, call: str, at: str) -> str:
    """End the helper that a call of a session waited for when the program stopped, and return what it did.

    Returns an empty string if the call has no helper. A helper in the background is not ended: it continues.
    """
    row = helper_rows.find_by_call(connection, parent, call)
    if row is None:
        return ""
    if row.wish.background:
        return f"[{row.name} (helper session {row.session}) works in the background. See process]"
    ended = msgspec.structs.replace(
        row, state="ended", reason="stopped", error="the program stopped", ended=at
    )
    helper_rows.end_helper(connection, ended)
    answer = f"The helper had ended with this answer:\n{row.answer}" if row.reason == "answered" else ""
    tree = f"[its working tree: {row.tree.place}]" if row.tree is not None else ""
    account = account_of_end(connection, row)
    return "\n".join(filter(None, (answer, account, tree, f"[helper session {row.session}]")))


def account_of_end(connection: apsw.Connection, row: helper_rows.HelperRow) -> str:
    """Return the number of a helper's steps, its calls, the files that it changed, and its last words if the
    row has none. Returns an empty string if it has answered."""
    if row.reason == "answered":
        return ""
    try:
        key = sessions.key_of(connection, row.session)
        entries = replay.list_entries(connection, row.session, 1, rows.SEQ_LIMIT)
    except NotFound:
        return "The helper had not begun."
    begun = {seq for (seq,) in connection.execute(_BEGUN, (key,))}
    lines = _call_lines(entries, begun)
    steps = sum(entry.message.role == "assistant" for entry in entries)
    head = f"The helper made {plural(steps, 'step')} and {plural(len(lines), 'call')}"
    cut = len(lines) - _MAX_CALLS
    more = f" (the last {_MAX_CALLS} are listed)" if cut > 0 else ""
    text = "\n".join([f"{head}{more}{':' if lines else '.'}", *lines[max(0, cut) :]])
    changed = facts.sum_up(facts.list_session_facts(connection, key)).files
    if changed:
        names = [f"{file.path} +{file.added:,} −{file.removed:,}" for file in changed[:_MAX_FILES]]
        names += [f"{len(changed) - _MAX_FILES:,} more"] if len(changed) > _MAX_FILES else []
        text += f"\nFiles that it changed, as far as is recorded: {', '.join(names)}"
    words = [entry.message.text for entry in entries if entry.message.role == "assistant"]
    last = next((word for word in reversed(words) if word.strip()), "")
    return (
        f"{text}\nIts last words: {clip(last.strip(), _MAX_WORDS_CHARS)}" if last and not row.answer else text
    )


_BEGUN = "SELECT seq FROM tool_calls WHERE session = ? AND started IS NOT NULL"


def _call_lines(entries: Sequence[replay.ReplayEntry], begun: set[int]) -> list[str]:
    """Return a line for each call: its tool, its arguments, and how it ended."""
    results = {entry.seq: entry for entry in entries if entry.message.role == "tool"}
    lines: list[str] = []
    for entry in entries:
        for index, call in enumerate(entry.message.tool_calls):
            seq = entry.seq + 1 + index
            arguments = " ".join(call.arguments.split())
            if len(arguments) > _MAX_ARGUMENT_CHARS:
                arguments = arguments[: _MAX_ARGUMENT_CHARS - 1] + "…"
            lines.append(f"- {call.name} {arguments}: {_end_of(results.get(seq), is_begun=seq in begun)}")
    return lines


def _end_of(result: replay.ReplayEntry | None, *, is_begun: bool) -> str:
    """Return how a call ended, from the entry of its result."""
    if result is None:
        return "was running, its outcome is unknown" if is_begun else "not run"
    call = result.call
    if call is None:
        return "failed" if result.message.is_error else "done"
    if call.exit_code is not None:
        return f"exit {call.exit_code}"
    return call.error_kind or "done"
