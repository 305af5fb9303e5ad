"""What going back did, and what steps changed, as programs read it: `--json` and the API give the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from whet.app.rewinding import Outcome, StepChanges
from whet.rewind.differences import FileDiff
from whet.rewind.recorder import Unrecorded
from whet.rewind.states import shown


class RewindPoints(msgspec.Struct, frozen=True):
    """What was recorded of a session, oldest first; `finished`: a rewind that a kill cut off was carried out
    to its end first. `left_out` is what the last look at the workspace left out."""

    finished: bool
    steps: Sequence[StepChanges]
    left_out: Sequence[Unrecorded]


class RestoredPath(msgspec.Struct, frozen=True):
    """A path that was set back. `merged`: somebody's later lines are kept in it; `exists`: it is there
    now."""

    path: str
    merged: bool
    exists: bool


class KeptPath(msgspec.Struct, frozen=True):
    """A path that is left as it is; `can_force`: it can be set back all the same."""

    path: str
    why: str
    can_force: bool


class FailedPath(msgspec.Struct, frozen=True):
    """A path that could not be set back."""

    path: str
    why: str


class RewindAnswer(msgspec.Struct, frozen=True):
    """What going back did, or with `dry_run` would do. `said` is the message that went with the
    conversation."""

    dry_run: bool
    restored: list[RestoredPath]
    conflicts: list[KeptPath]
    failed: list[FailedPath]
    conversation: bool
    said: str


class ChangedPath(msgspec.Struct, frozen=True):
    """How a path differs: `diff` is unified, empty where `note` says instead what happened."""

    path: str
    what: Literal["added", "removed", "changed"]
    added: int
    removed: int
    note: str
    diff: str


class DiffAnswer(msgspec.Struct, frozen=True):
    """What a turn, or a session, changed in the files."""

    files: list[ChangedPath]


def points_answer(
    finished: bool, steps: Sequence[StepChanges], left_out: Sequence[Unrecorded]
) -> RewindPoints:
    """Give the points; names that are no text are spelled out."""
    return RewindPoints(
        finished, steps, [msgspec.structs.replace(one, path=shown(one.path)) for one in left_out]
    )


def rewind_answer(found: Outcome, clean: Callable[[str], str] = str, *, is_plan: bool) -> RewindAnswer:
    """Give an outcome; `clean` goes over what the person had said."""
    files = found.files
    return RewindAnswer(
        is_plan,
        [
            RestoredPath(shown(one.path), one.merged, one.then is not None)
            for one in files.changes
            if one.path not in files.failed
        ],
        [KeptPath(shown(one.path), one.why, one.can_force) for one in files.conflicts],
        [FailedPath(shown(path), why) for path, why in files.failed.items()],
        found.conversation,
        clean(found.said),
    )


def diff_answer(found: Sequence[FileDiff], clean: Callable[[str], str] = str) -> DiffAnswer:
    """Give what changed; `clean` goes over the lines."""
    return DiffAnswer(
        [
            ChangedPath(
                one.path, one.what, one.added, one.removed, clean(one.note), clean("\n".join(one.lines))
            )
            for one in found
        ]
    )
