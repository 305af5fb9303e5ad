"""The page of all changes that a session made to files, with the form that restores files."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.contract.errors import NotFound, StoreError
from whet.contract.texts import plural
from whet.question import Row, parse_row
from whet.rewind.differences import FileDiff
from whet.rewind.rewinding import Outcome, Point, Rewinding
from whet.rewind.states import printable_path as path_shown
from whet.serve.board import shown
from whet.serve.board.frame import Frame
from whet.serve.board.marked import MarkedRow, mark_rows
from whet.serve.wire import ApiError
from whet.store import sessions
from whet.web.sessions import Visit

_MAX_ROWS = 3_000


class ShownChange(msgspec.Struct, frozen=True):
    """A changed file with the rows of its diff. `omitted` rows are left out."""

    diff: FileDiff
    rows: tuple[MarkedRow, ...]
    omitted: int


class ChangesPages:
    """Shows a session's changes to files and restores files."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def changes(self, request: Request, visit: Visit) -> Response:
        """Show every file that the session changed and did not restore."""
        return await self._show(request, visit)

    async def restore(self, request: Request, visit: Visit) -> Response:
        """Restore one file, or every file, to its state before the session, or undo the last restore.

        Asks first if another person or program has changed a file since.
        """
        session_id, frame, form = request.path_params["id"], self._frame, request.state.form
        file, own_edits = form.get("file", ""), form.get("own_edits", "")
        files = [file] if file else []
        if frame.turns.is_busy(session_id):
            raise ApiError(409, "A turn is running; stop it first.")
        try:
            async with frame.turns.hosted.using(session_id) as session:
                rewinding = Rewinding(frame.services.recordings.get(), session.log, frame.services.workspace)
                point = None if "undo" in form else await _first_point(rewinding)
                if not own_edits:
                    plan = await rewinding.preview(point, "files", force=False, files=files)
                    if plan.forceable_conflicts:
                        return await self._show(request, visit, plan=plan, file=file)
                outcome = await rewinding.rewind(point, "files", force=own_edits == "replace", files=files)
        except (NotFound, StoreError) as error:
            raise ApiError(409, error.message) from error
        return await self._show(request, visit, outcome=outcome, file=file)

    async def _show(
        self,
        request: Request,
        visit: Visit,
        *,
        plan: Outcome | None = None,
        outcome: Outcome | None = None,
        file: str = "",
    ) -> Response:
        session_id, frame = request.path_params["id"], self._frame
        row = await frame.services.database.read(lambda db: sessions.get(db, session_id))
        hosted = frame.turns.hosted
        session = hosted.find_open(session_id) or await hosted.open_session(session_id)
        diffs = await Rewinding(frame.services.recordings.get(), session.log, frame.services.workspace).diff()
        result = plan or outcome
        return frame.page(
            "changes.html",
            visit,
            here="sessions",
            row=row,
            changes=_build_changes(diffs),
            added=sum(diff.added for diff in diffs),
            removed=sum(diff.removed for diff in diffs),
            notice=shown.text(format_outcome(result, is_plan=plan is not None)) if result else "",
            asks=plan is not None,
            file=file,
            is_recorded=frame.services.settings.rewind.record,
        )


async def _first_point(rewinding: Rewinding) -> Point:
    """Return the first recorded turn. Raises NotFound if no turn was recorded."""
    turns = [step.turn for step in await rewinding.steps() if step.kind == "step"]
    if not turns:
        raise NotFound("no step of this session has changed files")
    return Point(turns[0])


def _build_changes(diffs: list[FileDiff]) -> list[ShownChange]:
    """Return the changes with the rows of their diffs, at most `_MAX_ROWS` rows in all."""
    remaining_rows = _MAX_ROWS
    changes: list[ShownChange] = []
    for diff in diffs:
        lines = [shown.whole(line) for line in diff.lines[2 : remaining_rows + 2]]
        rows = [Row("file", f"{diff.path}  (")] + [parse_row(line) for line in lines]
        remaining_rows = max(0, remaining_rows - len(lines))
        omitted = max(0, len(diff.lines) - 2 - len(lines))
        changes.append(ShownChange(diff, mark_rows(rows)[1:], omitted))
    return changes


def format_outcome(outcome: Outcome, *, is_plan: bool) -> str:
    """Return the outcome of a rewind, or its plan, with one line for each kind of result."""
    files = outcome.files
    restored = [change.path for change in files.changes if change.path not in files.failed]
    verb = "would restore" if is_plan else "restored"
    groups = [(f"{verb} {plural(len(restored), 'path')}", restored)] if restored else []
    groups += [(f"left as it is ({change.why})", [change.path]) for change in files.conflicts]
    groups += [(f"failed ({why})", [path]) for path, why in files.failed.items()]
    lines = [f"{label}: {', '.join(map(path_shown, paths[:20]))}" for label, paths in groups]
    return "\n".join(lines or ["no file was to be restored"])
