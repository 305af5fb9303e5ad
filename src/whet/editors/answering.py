"""Answer one prompt of the editor: run a slash command, or a turn with its updates and questions.

Events are sent as updates. The answer itself has only the reason of the turn's end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from acp import RequestError, update_agent_message_text
from acp.schema import PromptResponse, SessionInfoUpdate, StopReason

from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.slash import unescape
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import EndReason, TurnEnd
from whet.contract.messages import ImagePart, Message
from whet.editors.commands import EditorCommands
from whet.editors.editor import Editor
from whet.editors.opened import OpenedSession
from whet.editors.person import EditorPerson
from whet.editors.view import EditorTurnView, Scene
from whet.log import mask
from whet.store import lesson_counts, search
from whet.store.rows import SEQ_LIMIT

_RECENT_MESSAGES = 60
_STOP_REASONS: dict[EndReason, StopReason] = {
    "answered": "end_turn",
    "budget": "max_turn_requests",
    "cancelled": "cancelled",
    "refused": "refusal",
}


async def answer_prompt(
    editor: Editor,
    hosted: SessionHost,
    commander: EditorCommands,
    open_session: OpenedSession,
    content: tuple[str, Sequence[ImagePart]],
) -> PromptResponse:
    """Answer a prompt of text and images. Raises WhetError, and RequestError if the turn failed."""
    text, images = content
    session_id, view = open_session.session_id, _make_view(editor, hosted, open_session)
    for line in (*await _lessons_notice(hosted, open_session), *open_session.take_notices()):
        view.think(line)
    await _choose_model(hosted, open_session)
    message: str | None = unescape(text)
    if not images and (command := commander.parse(text)) is not None:
        output, messages = await commander.run(hosted, session_id, command, view.emit)
        if output:
            editor.outbox.send(session_id, update_agent_message_text(output))
        if not messages:
            return PromptResponse(stop_reason="end_turn")
        message = messages[0]
    person = make_person(editor, hosted, open_session, view)
    end = await hosted.submit(session_id, message, images, emit=view.emit, person=person)
    for line in open_session.take_notices():
        view.think(line)
    if end is not None and end.receipt is not None:
        editor.outbox.send(session_id, update_agent_message_text(f"\n\n{mask(end.receipt.line)}"))
    _send_title(hosted, open_session)
    return _prompt_response(end)


def make_person(
    editor: Editor, hosted: SessionHost, open_session: OpenedSession, view: EditorTurnView | None = None
) -> EditorPerson:
    """Return the person of a session. `view` shows the running turn, and is None between turns."""
    return EditorPerson(
        editor,
        open_session.session_id,
        view or _make_view(editor, hosted, open_session),
        lambda: open_session.mode,
        _arguments_finder(hosted),
    )


@contextmanager
def convert_errors() -> Generator[None]:
    """Convert a WhetError that is raised inside to a RequestError with its message and hint."""
    try:
        yield
    except NotFound as error:
        raise RequestError(-32002, mask(error.message), {"hint": mask(error.hint)}) from error
    except WhetError as error:
        raise RequestError(-32603, mask(error.message), {"hint": mask(error.hint)}) from error


def _make_view(editor: Editor, hosted: SessionHost, open_session: OpenedSession) -> EditorTurnView:
    def usage() -> tuple[int, float | None]:
        session = hosted.find_open(open_session.session_id)
        return (0, None) if session is None else (session.model.window_tokens, session.usage.cost_usd)

    def result_of(call_id: str) -> Message | None:
        session = hosted.find_open(open_session.session_id)
        return session.log.live.result_of(call_id) if session is not None else None

    clock = hosted.services.clock
    scene = Scene(
        open_session.session_id,
        open_session.workspace,
        open_session.buffers,
        lambda: hosted.services.todo_lists.get(open_session.session_id),
        usage,
        result_of,
    )
    return EditorTurnView(editor.outbox, scene, clock.monotonic_s, clock.new_id())


async def _lessons_notice(hosted: SessionHost, open_session: OpenedSession) -> list[str]:
    """Return a notice about unread lessons at the first prompt of an opened session, otherwise none."""
    if open_session.has_reported_lessons:
        return []
    open_session.has_reported_lessons = True
    changes = await hosted.services.database.append(lesson_counts.take_unread)
    line = changes.line_with("/inbox", "/memory")
    return [line[:1].upper() + line[1:] + "."] if line else []


async def _choose_model(hosted: SessionHost, open_session: OpenedSession) -> None:
    """Switch to the model that was chosen since the last prompt, if any."""
    model, open_session.chosen_model = open_session.chosen_model, ""
    if model:
        async with hosted.using(open_session.session_id) as session:
            if model != session.model.model:
                await hosted.switch_model(session, model)


def _send_title(hosted: SessionHost, open_session: OpenedSession) -> None:
    session = hosted.find_open(open_session.session_id)
    title = session.log.session.title if session is not None else ""
    if title and title != open_session.title:
        open_session.title = title
        update = SessionInfoUpdate(session_update="session_info_update", title=title)
        open_session.outbox.send(open_session.session_id, update)


def _arguments_finder(hosted: SessionHost) -> Callable[[str, str], Awaitable[str]]:
    async def find(session_id: str, call_id: str) -> str:
        """Read a call's arguments from the model's message, which is stored before the call is judged."""
        messages: list[tuple[int, Message]] = await hosted.services.database.read(
            lambda db: search.read_messages_around(db, session_id, SEQ_LIMIT - 1, _RECENT_MESSAGES, 0)
        )
        for _, message in reversed(messages):
            for call in message.tool_calls:
                if call.id == call_id:
                    return call.arguments
        return ""

    return find


def _prompt_response(end: TurnEnd | None) -> PromptResponse:
    """Return the answer to a prompt. Raises RequestError if the turn failed."""
    if end is None:
        return PromptResponse(stop_reason="end_turn")
    stop_reason = _STOP_REASONS.get(end.reason)
    if stop_reason is None:
        raise RequestError(-32603, mask(end.error or f"the turn {end.reason}"), {"hint": mask(end.hint)})
    return PromptResponse(stop_reason=stop_reason)
