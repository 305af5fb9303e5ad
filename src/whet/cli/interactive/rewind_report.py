"""Describe a rewind, the points to go back to, and file changes, for the terminal and chats."""

from __future__ import annotations

from collections.abc import Sequence

from whet.contract.texts import plural
from whet.rewind.differences import FileDiff
from whet.rewind.rewinding import Outcome, StepChanges
from whet.rewind.states import printable_path
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.wording import exact, printable

_LISTED = 20


def points(steps: Sequence[StepChanges]) -> list[str]:
    """Return a line for each point that files can be restored to."""
    lines: list[str] = []
    for step in steps:
        if step.kind == "rewind":
            lines.append(f"  {'':<8} rewind, {plural(step.paths, 'path')}")
        elif step.paths:
            lines.append(f"  {f'{step.turn}.{step.step}':<8} {plural(step.paths, 'path')} changed")
    return lines


def outcome(result: Outcome, *, is_plan: bool) -> list[str]:
    """Return lines that describe the result of a rewind, or its plan."""
    files = result.files
    lines: list[str] = []
    if result.finished:
        lines.append("a rewind that was cut off has been finished first")
    restored = [change for change in files.changes if change.path not in files.failed]
    if restored:
        lines.append(f"{'would restore' if is_plan else 'restored'} {plural(len(restored), 'path')}")
        for change in restored[:_LISTED]:
            mark = "removed" if change.then is None else "brought back" if change.now is None else "set back"
            note = ", later edits kept" if change.merged else ""
            lines.append(f"  {display_path(change.path)} ({mark}{note})")
        if len(restored) > _LISTED:
            lines.append(f"  ... and {len(restored) - _LISTED} more")
    elif not files.conflicts:
        lines.append("no file has to be restored")
    for conflict in files.conflicts:
        lines.append(f"  left as it is: {display_path(conflict.path)} ({conflict.why})")
    for path, why in files.failed.items():
        lines.append(f"  failed: {display_path(path)} ({why})")
    if result.conversation:
        lines.append(f"the conversation {'would go' if is_plan else 'goes'} on from there")
    if result.undone_text:
        lines.append(f"you had said: {printable(fold_pastes(result.undone_text))}")
    return lines


def summary(diffs: Sequence[FileDiff]) -> list[str]:
    """Return a line for each changed path, and a total."""
    lines = [f"  {display_path(diff.path)}  {_counts(diff)}" for diff in diffs]
    added, removed = sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs)
    return [*lines, f"{plural(len(diffs), 'path')} changed, +{added} −{removed}"]


def display_path(path: str) -> str:
    """Return a path on one line, with control and invisible characters escaped."""
    return exact(printable_path(path))


def _counts(diff: FileDiff) -> str:
    counts = f"+{diff.added} −{diff.removed}" if diff.lines else diff.what
    return f"{counts} ({diff.note})" if diff.note else counts
