"""Describe the work of a helper that ended without an answer: its calls, its changed files, its last words.

Everything is read from the helper's stored session, so it works after a kill too.
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
_MAX_LAST_TEXT_CHARS = 1_500


def close_helper(connection: apsw.Connection, parent: str, call: str, at: str) -> str:
    """End the helper that a call waited for when the program stopped, and return an account of its work.

    Returns an empty string if the call has no helper. A helper in the background is not ended, because it
    goes on.
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
    """Return an account of a helper that ended early: its steps, calls and changed files.

    Its last words are added unless the row holds them already. Returns an empty string for a helper that
    ended with an answer.
    """
    if row.reason == "answered":
        return ""
    try:
        key = sessions.key_of(connection, row.session)
        entries = replay.list_entries(connection, row.session, 1, rows.SEQ_LIMIT)
    except NotFound:
        return "The helper had not begun."
    begun = {seq for (seq,) in connection.execute(_BEGUN, (key,))}
    lines = _call_lines(entries, begun)
    answers = [entry.message.text.strip() for entry in entries if entry.message.role == "assistant"]
    head = f"The helper made {plural(len(answers), 'step')} and {plural(len(lines), 'call')}"
    cut = len(lines) - _MAX_CALLS
    more = f" (the last {_MAX_CALLS} are listed)" if cut > 0 else ""
    text = "\n".join([f"{head}{more}{':' if lines else '.'}", *lines[max(0, cut) :]])
    changed = facts.sum_up(facts.list_session_facts(connection, key)).files
    if changed:
        names = [f"{file.path} +{file.added:,} −{file.removed:,}" for file in changed[:_MAX_FILES]]
        names += [f"{len(changed) - _MAX_FILES:,} more"] if len(changed) > _MAX_FILES else []
        text += f"\nFiles that it changed, as far as is recorded: {', '.join(names)}"
    texts = [answer for answer in answers if answer]
    if texts and not row.answer:
        text += f"\nIts last words: {clip(texts[-1], _MAX_LAST_TEXT_CHARS)}"
    return text


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
            end = _describe_end(results.get(seq), is_begun=seq in begun)
            lines.append(f"- {call.name} {arguments}: {end}")
    return lines


def _describe_end(result: replay.ReplayEntry | None, *, is_begun: bool) -> str:
    """Describe how a call ended, given the entry of its result or None."""
    if result is None:
        return "was running, its outcome is unknown" if is_begun else "not run"
    call = result.call
    if call is None:
        return "failed" if result.message.is_error else "done"
    if call.exit_code is not None:
        return f"exit {call.exit_code}"
    return call.error_kind or "done"
