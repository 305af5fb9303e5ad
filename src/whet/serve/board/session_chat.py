"""The forms of a session's page that run turns (send, stop, fork, rewind, plan), and the stream of its
changes.

The turns are those of the API (`serve/turns.py`), with the same questions, gate and store. The forms work
without a script; with one, the page shows the answer while it is written.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from whet.app import planning
from whet.app.conversations.slash import parse
from whet.app.received_files import MAX_IMAGE_BYTES, save_attachment
from whet.clock import iso
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import BadInput, ConfigError, NotFound, StoreError, WhetError
from whet.contract.events import Event, ReasoningDelta, TextDelta, ToolProgress
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart, image_type
from whet.rewind.rewinding import Point, Rewinding
from whet.serve.board import shown
from whet.serve.board.box import parse_folder, set_mode, set_model
from whet.serve.board.changes import format_outcome
from whet.serve.board.frame import Frame, number_or_zero
from whet.serve.board.history_pages import HistoryPages
from whet.serve.board.live_turn import LiveTurn, LiveTurns
from whet.serve.turns import TurnInput
from whet.serve.wire import ApiError, JsonAnswer, Stream
from whet.store import forks, replay, sessions
from whet.visible import visible
from whet.web.sessions import Sessions, Visit
from whet.web.uploads import Upload

MAX_UPLOAD_BYTES = 30_000_000
_MAX_FILES, _MAX_CHARS = 10, 400_000
_MAX_FOLLOWERS = 100
_POLL_S = 1.0
_QUIET = (TextDelta, ReasoningDelta, ToolProgress)
_encode = msgspec.json.Encoder().encode


class ComposedMessage(msgspec.Struct, frozen=True):
    """A message from the page's form, with its images."""

    text: str
    images: tuple[ImagePart, ...]


class SessionChat:
    """Handles the forms of a session's page and streams its changes. `beat_s`: how long a stream may be
    silent."""

    def __init__(
        self, frame: Frame, history: HistoryPages, live: LiveTurns, logins: Sessions, beat_s: float
    ) -> None:
        self._frame = frame
        self._history = history
        self._live = live
        self._logins = logins
        self._beat_s = beat_s
        self._followers = 0

    async def begin(self, request: Request, visit: Visit) -> Response:
        """Create a session with the first message and go to its page."""
        form, frame = request.state.form, self._frame
        text = read_form_text(form.get("text", ""))
        if not text and not request.state.files:
            raise ApiError(400, "Write what you want done first.")
        name, argument = parse(text) or ("", "")
        is_plan = name == "plan"
        if is_plan and (not argument or argument.split("\n")[0] in ("go", "off", "steps")):
            raise ApiError(400, "Nothing is planned yet: write /plan and what you want done.")
        if name and not is_plan:
            raise ApiError(400, f"/{name} works in a session: open one, or begin one with a message.")
        text = argument if is_plan else text
        session_id, folder = await self._create(text, form)
        if is_plan:
            await self._run_plan_command(session_id, text)
        message = await compose_message(text, request.state.files, folder)
        await frame.turns.begin(session_id, TurnInput(message.text, message.images))
        return _redirect_to(request, session_id)

    async def _create(self, text: str, form: dict[str, str]) -> tuple[str, Path]:
        """Create a session with the model, mode and folder of a form; return its id and folder."""
        services, hosted = self._frame.services, self._frame.turns.hosted
        try:
            folder = parse_folder(form.get("folder", ""), services.workspace)
            session_id = await hosted.new_session(
                title=sessions.make_title(text), private="private" in form, source="web", workspace=folder
            )
            if (model := form.get("model", "")) != form.get("model_was", ""):
                await set_model(self._frame.turns, session_id, model)
            if (mode := form.get("mode", "")) != form.get("mode_was", ""):  # the page may show an old mode
                await set_mode(services, session_id, mode)
        except ConfigError as error:
            raise ApiError(400, f"{error.message}. {error.hint}".rstrip(". ") + ".") from error
        return session_id, folder or services.workspace

    async def say(self, request: Request, visit: Visit) -> Response:
        """Send a message. It starts a turn, or the running turn reads it before its next step."""
        session_id, turns = request.path_params["id"], self._frame.turns
        text = read_form_text(request.state.form.get("text", ""))
        row = await self._row(session_id)
        if not text and not request.state.files:
            return await self._refuse(request, visit, ApiError(400, "Nothing was written."))
        if row.kind != "chat":
            return await self._refuse(request, visit, ApiError(400, f"A {row.kind} takes no messages."))
        command = parse(text)
        if command is not None and command[0] != "plan":
            return await self._run_command(request, visit, command)
        if command is not None:
            try:
                reply = await self._run_plan_command(session_id, command[1])
            except ConfigError as error:
                return await self._refuse(request, visit, ApiError(400, error.message))
            if not reply.message:
                return _redirect_to(request, session_id)
            text = reply.message
        message = await compose_message(
            text, request.state.files, Path(row.workspace or self._frame.services.workspace)
        )
        await turns.begin(session_id, TurnInput(message.text, message.images, "steer"))
        return _redirect_to(request, session_id)

    async def _run_command(self, request: Request, visit: Visit, command: tuple[str, str]) -> Response:
        """Run a slash command, and show its output on the page."""
        session_id, frame = request.path_params["id"], self._frame
        if frame.turns.is_busy(session_id):
            return await self._refuse(request, visit, ApiError(409, "A turn is running; stop it first."))
        try:
            outcome = await frame.commands.run(session_id, command)
        except WhetError as error:
            problem = f"{error.message}. {error.hint}".rstrip(". ") + "."
            return await self._refuse(request, visit, ApiError(400, problem))
        for text in outcome.sends:
            await frame.turns.begin(session_id, TurnInput(text, (), "steer"))
        if outcome.sends and not outcome.output:
            return _redirect_to(request, session_id)
        return await self._history.session(request, visit, output=outcome.output or "Done.")

    async def _run_plan_command(self, session_id: str, argument: str) -> planning.PlanReply:
        hosted = self._frame.turns.hosted
        if hosted.find_open(session_id) is None:
            await hosted.open_session(session_id)
        return await planning.run_command(self._frame.services, session_id, argument)

    async def plan(self, request: Request, visit: Visit) -> Response:
        """Approve a plan with the steps from the form, or end the planning."""
        session_id, form = request.path_params["id"], request.state.form
        row, lines = await self._row(session_id), form.get("steps", "").split("\n")
        plan = await planning.read_plan(self._frame.services, session_id)
        action = "off" if form.get("do") == "off" else "go"
        try:
            if row.kind != "chat":
                raise ConfigError(f"a {row.kind} has no plan of a person's")
            shown_steps = [shown.line(step.text, 300) for step in plan.steps]
            is_changed = [line.strip() for line in lines if line.strip()] != shown_steps
            if action == "go" and plan.steps and is_changed:
                await self._run_plan_command(session_id, "\n".join(["steps", *lines]))
            reply = await self._run_plan_command(session_id, action)
        except (ConfigError, BadInput) as error:
            return await self._refuse(request, visit, ApiError(400, error.message))
        if reply.message:
            await self._frame.turns.begin(session_id, TurnInput(reply.message, (), "steer"))
        return _redirect_to(request, session_id)

    async def fork(self, request: Request, visit: Visit) -> Response:
        """Fork the session at a turn and go to the fork's page. The original is not changed."""
        session_id, services = request.path_params["id"], self._frame.services
        row = await self._row(session_id)
        if row.kind != "chat":
            return await self._refuse(request, visit, ApiError(400, f"A {row.kind} takes no messages."))
        turn, new_id = number_or_zero(request.state.form.get("turn", "")), services.clock.new_id()
        now = iso(services.clock.now())
        try:
            await services.database.write(lambda db: forks.fork(db, session_id, turn, new_id, now))
        except NotFound as error:
            return await self._refuse(request, visit, ApiError(400, error.message))
        return _redirect_to(request, new_id)

    async def rewind(self, request: Request, visit: Visit) -> Response:
        """Go back to before a turn, both files and conversation. Turn 0 undoes the last rewind.

        The page lists the outcome for each file, or asks first if others have changed files since.
        """
        session_id, frame, form = request.path_params["id"], self._frame, request.state.form
        row, turn = await self._row(session_id), number_or_zero(form.get("turn", ""))
        if row.kind != "chat":
            return await self._refuse(request, visit, ApiError(400, f"A {row.kind} takes no messages."))
        if frame.turns.is_busy(session_id):
            return await self._refuse(request, visit, ApiError(409, "A turn is running; stop it first."))
        point, own_edits = Point(turn) if turn else None, form.get("own_edits", "")
        try:
            async with frame.turns.hosted.using(session_id) as session:
                rewinding = Rewinding(frame.services.recordings.get(), session.log, frame.services.workspace)
                if not own_edits:
                    plan = await rewinding.preview(point, "both", force=False)
                    if plan.forceable_conflicts:
                        notice = format_outcome(plan, is_plan=True)
                        return await self._history.session(request, visit, notice=notice, asks=turn)
                outcome = await rewinding.rewind(point, "both", force=own_edits == "replace")
        except (NotFound, StoreError) as error:
            return await self._refuse(request, visit, ApiError(409, error.message))
        return await self._history.session(request, visit, notice=format_outcome(outcome, is_plan=False))

    async def stop(self, request: Request, visit: Visit) -> Response:
        """Stop the running turn. Its stored effects stay."""
        session_id = request.path_params["id"]
        if not await self._frame.turns.cancel(session_id):
            error = ApiError(409, "Nothing of this session runs in this server.")
            return await self._refuse(request, visit, error)
        return _redirect_to(request, session_id)

    async def follow(self, request: Request) -> Response:
        """Stream a session's changes: text as it is written, and an event whenever something was stored."""
        visit = await self._logins.find_visit(request)
        if visit is None:
            return Response(status_code=403)
        if self._followers >= _MAX_FOLLOWERS:
            return Response(status_code=503, headers={"retry-after": "5"})
        session_id = request.path_params["id"]
        await self._row(session_id)

        async def source(gone: asyncio.Future[None]) -> AsyncGenerator[bytes]:
            self._followers += 1
            follower = Follower(self._frame, self._live, session_id)
            try:
                yield b"retry: 1000\n\n"
                while not (gone.done() or self._frame.turns.feeds.is_closed):
                    piece = follower.take_events()
                    if piece:
                        yield piece
                    if await follower.wait(gone, self._beat_s):
                        continue
                    if await self._logins.find_visit(request) is None:
                        return  # the login has ended meanwhile
                    yield b": still here\n\n"
            finally:
                self._followers -= 1
                follower.close()

        return Stream(source)

    async def _row(self, session_id: str) -> sessions.SessionRow:
        return await self._frame.services.database.read(lambda db: sessions.get(db, session_id))

    async def _refuse(self, request: Request, visit: Visit, error: ApiError) -> Response:
        if _is_script(request):
            return JsonAnswer({"problem": error.message}, error.status)
        return await self._history.session(request, visit, problem=error)


async def compose_message(text: str, files: Sequence[Upload], workspace: Path) -> ComposedMessage:
    """Return a message with its images. Other files are saved in the workspace, and the text gets a line for
    each of them."""
    lines: list[str] = []
    images: list[ImagePart] = []
    for file in files[:_MAX_FILES]:
        kind = image_type(file.data)
        if kind and len(file.data) <= MAX_IMAGE_BYTES and not image_fault(file.data):
            images.append(ImagePart(kind, base64.b64encode(file.data).decode()))
            continue
        try:
            path = await asyncio.to_thread(save_attachment, workspace, file.name, file.data)
        except (WhetError, OSError) as error:
            why = error.message if isinstance(error, WhetError) else str(error.strerror)
            failure = f"[{visible(file.name, 80)!r} was sent and could not be kept: {why}]"
            lines.append(wrap_in_tag("file", failure))
            continue
        heading = f"[file received: {path.relative_to(workspace)}, {len(file.data):,} bytes]"
        lines.append(wrap_in_tag("file", heading))
    if len(files) > _MAX_FILES:
        lines.append(f"[{len(files) - _MAX_FILES} more files were left out]")
    return ComposedMessage("\n".join(filter(None, (text, *lines))), tuple(images))


class Follower:
    """What one open page has been sent so far."""

    def __init__(self, frame: Frame, live: LiveTurns, session_id: str) -> None:
        self._frame = frame
        self._live = live
        self._session_id = session_id
        self._turn: LiveTurn | None = None
        self._step = -1
        self._complete_chars, self._complete_units, self._sent = 0, 0, ""
        self._may_be_stored = True
        self._sent_calls: tuple[object, ...] = ()
        self._changed = asyncio.Event()
        self._marks: tuple[object, ...] | None = None
        frame.turns.questions.listeners.append(self._wake)
        frame.turns.feeds.listeners.append(self._handle_event)

    def close(self) -> None:
        """Stop listening."""
        self._frame.turns.questions.listeners.remove(self._wake)
        self._frame.turns.feeds.listeners.remove(self._handle_event)

    def take_events(self) -> bytes:
        """Return the events that this page has not received yet, or empty bytes."""
        self._changed.clear()
        turn = self._live.turn_of(self._session_id)
        pieces: list[bytes] = []
        if self._may_be_stored:
            self._may_be_stored = False
            marks = self._read_marks()
            if marks != self._marks:
                self._marks = marks
                pieces.append(b"event: stored\ndata: {}\n\n")
        if turn is not None:
            pieces.append(self._new_text(turn))
            pieces.append(self._new_calls(turn))
        return b"".join(pieces)

    async def wait(self, gone: asyncio.Future[None], beat_s: float) -> bool:
        """Wait for changes, also by another process. Returns False if there were none for `beat_s`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + beat_s
        while (remaining_s := until_s - loop.time()) > 0:
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                done, _ = await asyncio.wait(
                    (changed, gone), timeout=min(remaining_s, _POLL_S), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                changed.cancel()
            if done:
                return True
            if self._read_marks() != self._marks:  # another process wrote it
                self._may_be_stored = True
                return True
        return False

    def _new_text(self, turn: LiveTurn) -> bytes:
        """Return the new text for the page. `at` counts UTF-16 units, as the page's script does."""
        if turn is not self._turn or turn.step != self._step:
            self._turn, self._step, self._complete_chars, self._complete_units, self._sent = (
                turn,
                turn.step,
                0,
                0,
                "",
            )
        complete, after = turn.text.since(self._complete_chars)
        fresh = complete + after
        if fresh == self._sent:
            return b""
        at, new_text = self._complete_units, fresh
        if self._sent and fresh.startswith(self._sent):
            at, new_text = at + count_units(self._sent), fresh[len(self._sent) :]
        self._complete_chars, self._complete_units = (
            self._complete_chars + len(complete),
            self._complete_units + count_units(complete),
        )
        self._sent = after
        return b"event: text\ndata: %s\n\n" % _encode({"step": turn.step, "at": at, "text": new_text})

    def _new_calls(self, turn: LiveTurn) -> bytes:
        state = (turn, turn.version)
        if state == self._sent_calls:
            return b""
        self._sent_calls = state
        calls = [
            {"name": call.name, "about": call.about, "tail": visible(call.tail, 2_000)}
            for call in turn.calls.values()
        ]
        facts = {"calls": calls, "note": turn.note, "thinking": turn.is_thinking}
        return b"event: calls\ndata: %s\n\n" % _encode(facts)

    def _read_marks(self) -> tuple[object, ...]:
        """Return a value that changes whenever the page must be fetched again. It consists of the last
        message, the state of the last turn and the waiting questions."""
        session_id = self._session_id

        def read(db: apsw.Connection) -> tuple[object, ...]:
            turn = replay.read_last_turn(db, session_id)
            return (
                replay.read_last_seq(db, session_id),
                turn.number if turn else 0,
                turn.ended if turn else "",
            )

        question_ids = tuple(question.id for question in self._frame.questions(session_id))
        is_running = self._frame.turns.is_running(session_id)
        return (
            *self._frame.services.database.read_now(read),
            question_ids,
            is_running,
            self._live.problem(session_id),
        )

    def _handle_event(self, session_id: str, event: Event) -> None:
        if session_id == self._session_id:
            self._may_be_stored = self._may_be_stored or not isinstance(event, _QUIET)
            self._changed.set()

    def _wake(self) -> None:
        self._may_be_stored = True
        self._changed.set()


def count_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def read_form_text(text: str) -> str:
    """Return the text of a form with normalised newlines. Raises ApiError if it is too long."""
    text = text.replace("\r\n", "\n").strip("\n")
    if len(text) > _MAX_CHARS:
        raise ApiError(413, f"A message may have {_MAX_CHARS:,} characters; attach it as a file.")
    return text if text.strip() else ""


def _is_script(request: Request) -> bool:
    return request.headers.get("accept", "").startswith("application/json")


def _redirect_to(request: Request, session_id: str) -> Response:
    if _is_script(request):
        return JsonAnswer({"session": session_id}, 202)
    return RedirectResponse(f"/sessions/{session_id}#end", 303)
