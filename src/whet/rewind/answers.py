"""Rewind results and step changes for programs: `--json` and the API return the same structures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from whet.rewind.differences import FileDiff
from whet.rewind.recorder import Unrecorded
from whet.rewind.rewinding import Outcome, StepChanges
from whet.rewind.states import printable_path


class RewindPoints(msgspec.Struct, frozen=True):
    """The recorded steps of a session, oldest first.

    `finished`: an interrupted rewind was completed first. `left_out` are the paths that the last scan of
    the workspace skipped.
    """

    finished: bool
    steps: Sequence[StepChanges]
    left_out: Sequence[Unrecorded]


class RestoredPath(msgspec.Struct, frozen=True):
    """A restored path. `merged`: later lines of another writer were kept in it; `exists`: the path exists
    now."""

    path: str
    merged: bool
    exists: bool


class KeptPath(msgspec.Struct, frozen=True):
    """A path that was not restored; `can_force`: it can be restored with force."""

    path: str
    why: str
    can_force: bool


class FailedPath(msgspec.Struct, frozen=True):
    """A path that could not be restored."""

    path: str
    why: str


class RewindAnswer(msgspec.Struct, frozen=True):
    """The result of a rewind, or with `dry_run` the result that it would have. `said` is the user message
    that was undone with the conversation."""

    dry_run: bool
    restored: list[RestoredPath]
    conflicts: list[KeptPath]
    failed: list[FailedPath]
    conversation: bool
    said: str


class ChangedPath(msgspec.Struct, frozen=True):
    """How a path differs. `diff` is unified; it is empty if `note` describes the change instead."""

    path: str
    what: Literal["added", "removed", "changed"]
    added: int
    removed: int
    note: str
    diff: str


class DiffAnswer(msgspec.Struct, frozen=True):
    """The file changes of a turn or a session."""

    files: list[ChangedPath]


def points_answer(
    finished: bool, steps: Sequence[StepChanges], left_out: Sequence[Unrecorded]
) -> RewindPoints:
    """Return the points; names that are not valid text are escaped."""
    return RewindPoints(
        finished,
        steps,
        [
            msgspec.structs.replace(unrecorded, path=printable_path(unrecorded.path))
            for unrecorded in left_out
        ],
    )


def rewind_answer(outcome: Outcome, clean: Callable[[str], str] = str, *, is_plan: bool) -> RewindAnswer:
    """Return the answer for an outcome; `clean` is applied to the person's message."""
    files = outcome.files
    return RewindAnswer(
        is_plan,
        [
            RestoredPath(printable_path(entry.path), entry.merged, entry.then is not None)
            for entry in files.changes
            if entry.path not in files.failed
        ],
        [KeptPath(printable_path(entry.path), entry.why, entry.can_force) for entry in files.conflicts],
        [FailedPath(printable_path(path), why) for path, why in files.failed.items()],
        outcome.conversation,
        clean(outcome.undone_text),
    )


def diff_answer(diffs: Sequence[FileDiff], clean: Callable[[str], str] = str) -> DiffAnswer:
    """Return the answer for file diffs; `clean` is applied to the lines."""
    return DiffAnswer(
        [
            ChangedPath(
                diff.path, diff.what, diff.added, diff.removed, clean(diff.note), clean("\n".join(diff.lines))
            )
            for diff in diffs
        ]
    )
