"""How what a rewind did, the points to go back to, and what changed read as lines; for terminal and chats."""

from __future__ import annotations

from collections.abc import Sequence

from whet.app.rewinding import Outcome, StepChanges
from whet.cli.wording import exact, printable
from whet.contract.texts import plural
from whet.rewind.differences import FileDiff
from whet.rewind.states import shown

_LISTED = 20


def points(steps: Sequence[StepChanges]) -> list[str]:
    """Give a line for each point that files can be taken back to."""
    lines: list[str] = []
    for one in steps:
        if one.kind == "rewind":
            lines.append(f"  {'':<8} rewind, {plural(one.paths, 'path')}")
        elif one.paths:
            lines.append(f"  {f'{one.turn}.{one.step}':<8} {plural(one.paths, 'path')} changed")
    return lines


def outcome(found: Outcome, *, is_plan: bool) -> list[str]:
    """Say what a rewind did, or would do."""
    files, lines = found.files, list[str]()
    if found.finished:
        lines.append("a rewind that was cut off has been finished first")
    done = [one for one in files.changes if one.path not in files.failed]
    if done:
        lines.append(f"{'would restore' if is_plan else 'restored'} {plural(len(done), 'path')}")
        for one in done[:_LISTED]:
            mark = "removed" if one.then is None else "brought back" if one.now is None else "set back"
            kept = ", later edits kept" if one.merged else ""
            lines.append(f"  {named(one.path)} ({mark}{kept})")
        if len(done) > _LISTED:
            lines.append(f"  ... and {len(done) - _LISTED} more")
    elif not files.conflicts:
        lines.append("no file has to be restored")
    for conflict in files.conflicts:
        lines.append(f"  left as it is: {named(conflict.path)} ({conflict.why})")
    for path, why in files.failed.items():
        lines.append(f"  failed: {named(path)} ({why})")
    if found.conversation:
        lines.append(f"the conversation {'would go' if is_plan else 'goes'} on from there")
    if found.said:
        lines.append(f"you had said: {printable(found.said)}")
    return lines


def summary(found: Sequence[FileDiff]) -> list[str]:
    """Give a line for each changed path, and one for all."""
    lines = [f"  {named(one.path)}  {_counts(one)}" for one in found]
    added, removed = sum(one.added for one in found), sum(one.removed for one in found)
    return [*lines, f"{plural(len(found), 'path')} changed, +{added} −{removed}"]


def named(path: str) -> str:
    """Give a path on one line, with what a terminal would hide or act on spelled out."""
    return exact(shown(path)).replace("\n", "\\n")


def _counts(one: FileDiff) -> str:
    said = f"+{one.added} −{one.removed}" if one.lines else one.what
    return f"{said} ({one.note})" if one.note else said
