"""The texts of a review: its prompts, and the summary that a person reads afterwards.

The prompts are the Markdown files beside this module. The summary is built only from the review's own
settled ledger rows, so that text which it merely read or tried can't appear in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from whet.contract.texts import flat, plural, short
from whet.memory.requests import SIMILAR_NOTE, summarize_change
from whet.review.jobs import Kind
from whet.store.ledger import LedgerRow

TITLE = "Self-improvement review"
GO_ON = f"{TITLE}: it was interrupted. Go on where it stopped; what you saved so far is kept."
_BRIEF = "Hand in all lessons in one answer: the review ends when they are taken."
_OLD_TEXT_CHARS = 120


def review_message(
    kinds: Sequence[Kind],
    focus: str,
    allowed: Sequence[str],
    others: str = "",
    *,
    is_brief: bool = False,
    has_calls: bool = False,
) -> str:
    """Return the one message that a review adds to the conversation; it begins with `TITLE` and ends with
    `others`. `has_calls`: there are calls whose outcomes it asks for."""
    tasks = "".join(read_prompt(f"{kind}.md") for kind in kinds)
    focus_text = f"\nThe person asks to look above all at: {focus.strip()}\n" if focus.strip() else ""
    text = read_prompt("review.md")
    values = {
        "tasks": tasks,
        "allowed": ", ".join(allowed),
        "outcomes": read_prompt("outcomes.md") if has_calls else "",
    }
    for name, value in (*values.items(), ("focus", focus_text)):
        text = text.replace(f"{{{name}}}", value)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return "\n".join((text.strip(), *((_BRIEF,) if is_brief else ()))) + others


def write_others(texts: Sequence[str]) -> str:
    """Return the text about the other conversations that a review looks at; empty if there are none."""
    if not texts:
        return ""
    return "\n\n".join(("", read_prompt("others.md").strip(), *texts))


def read_prompt(name: str) -> str:
    """Return the text of a prompt file."""
    return (Path(__file__).parent / "prompts" / name).read_text("utf-8").rstrip() + "\n"


def write_summary(rows: Sequence[LedgerRow]) -> str:
    """Return one line on the saved changes of a review: "Memory updated · Skill 'deploy' patched (2 quotes)";
    empty if nothing was saved."""
    active = [row for row in rows if row.state == "active"]
    groups: dict[str, list[LedgerRow]] = {}
    for row in active:
        groups.setdefault(summarize_change(row), []).append(row)
    parts = [f"{name}{_quotes(of_part)}" for name, of_part in groups.items()]
    parts += [text for row in active if (text := _describe_old_text(row))]
    inbox_count = sum(row.state in ("inbox", "quarantined") for row in rows)
    if inbox_count:
        parts.append(f"{inbox_count:,} {'waits' if inbox_count == 1 else 'wait'} for you: whet review inbox")
    refused = sum(row.state == "refused" for row in rows)
    if refused and not active:
        parts.append(
            f"nothing saved, {refused} refused: whet review inbox"
            if not inbox_count
            else f"{refused} refused"
        )
    return f"{TITLE}: {' · '.join(parts)}" if parts else ""


def _describe_old_text(row: LedgerRow) -> str:
    """Return the note that a change replaced or removed, or that it may contradict, and the command that
    undoes it."""
    if row.kind != "memory":
        return ""
    if row.before:
        is_kept = row.after.startswith(row.before)
        action = "added to" if is_kept else "replaced" if row.after else "removed"
        text = f"{action} {_short(row.before)}"
    elif row.reason.startswith(SIMILAR_NOTE):
        text = f"{SIMILAR_NOTE} {_short(row.reason.removeprefix(SIMILAR_NOTE).strip(' “”'))}"
    else:
        return ""
    return f"{text} (whet undo {row.id})"


def _short(text: str) -> str:
    return f"“{short(flat(text).strip('“”'), _OLD_TEXT_CHARS)}”"


def _quotes(rows: Sequence[LedgerRow]) -> str:
    count = len({(quote.session_id, quote.seq, quote.quote) for row in rows for quote in row.evidence})
    return f" ({plural(count, 'quote')})" if count else ""
