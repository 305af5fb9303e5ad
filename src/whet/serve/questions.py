"""Questions of running turns that wait for a person: listed, answered by the owner's token, or timed out.

Nobody's answer in time is a denial. Nothing here is durable: a question ends with its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from whet.amending import amended, editable
from whet.clock import Clock, iso
from whet.contract.errors import NotFound
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import Row, worded
from whet.serve.wire import ApiError
from whet.visible import visible

_ANSWERS = ("once", "session", "always", "no")
_MOST_TEXT = 20_000


class PendingQuestion(msgspec.Struct, frozen=True):
    """What waits: an action to approve (`tool`, `subject`, `reasons`), or a question in words (`subject`,
    `choices`). `title` and `body` are the question as a person reads it, what would be written included;
    `grant` says what "session" and "always" would cover, empty where neither is offered; `scopes` what else
    they may, `keeps` which of these can be kept for good; `opening` what a sandbox would be opened for;
    `digest` what a yes is bound to. `draft` is the part of the call that a page may have edited, empty where
    a page can't show it as it is."""

    id: str
    kind: Literal["approval", "question"]
    session_id: str
    call_id: str
    tool: str
    subject: str
    reasons: tuple[str, ...]
    choices: tuple[str, ...]
    grant: str
    asked: str
    expires: str
    title: str = ""
    body: tuple[Row, ...] = ()
    scopes: tuple[str, ...] = ()
    folder: str = ""
    opening: str = ""
    digest: str = ""
    keeps: tuple[bool, ...] = ()
    draft: str = ""


class Given(msgspec.Struct, frozen=True):
    """An answer: the word, the words of a no, which scope a lasting yes is for, and the arguments to run
    instead of those that were shown, or the draft as the person changed it. `digest`, where it is there, is
    that of the question which was looked at."""

    answer: str = ""
    reason: str = ""
    scope: int = 0
    arguments: dict[str, object] | None = None
    draft: str | None = None
    digest: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """A question, where its answer goes, and the gate's own request where it is about a call."""

    question: PendingQuestion
    future: asyncio.Future[Given | None]
    request: ApprovalRequest | None = None


class Questions:
    """The questions of one process. `listeners` hear that there is one more, or one less."""

    def __init__(self, clock: Clock, wait_s: float) -> None:
        self._clock = clock
        self.wait_s = wait_s
        self._waiting: dict[str, Waiting] = {}
        self.listeners: list[Callable[[], None]] = []

    def pending(self) -> list[PendingQuestion]:
        """Give what waits, oldest first."""
        return [one.question for one in self._waiting.values()]

    async def answer(self, question_id: str, answer: str, more: Given | None = None) -> PendingQuestion:
        """Answer a question, `more` is what was said beside the word. Raises NotFound where it does not wait,
        ApiError for a wrong answer."""
        found = self._waiting.get(question_id)
        if found is None or found.future.done():  # an answer that came second must not seem to count
            raise NotFound("there is no such question, or it was answered", hint="GET /api/approvals")
        given = fitting(found.question, answer, more)
        if found.request is not None and given.draft is not None and given.answer == "once":
            given = msgspec.structs.replace(given, arguments=amended(found.request, given.draft))
        found.future.set_result(given)
        return found.question

    async def ask(self, question: PendingQuestion) -> str | None:
        """Wait for the answer; None where none came in time."""
        given = await self.whole(question)
        return None if given is None else given.answer

    async def whole(self, question: PendingQuestion, request: ApprovalRequest | None = None) -> Given | None:
        """Wait for the answer and all that was said with it; None where none came in time."""
        future: asyncio.Future[Given | None] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = Waiting(question, future, request)
        self._tell()
        try:
            async with asyncio.timeout(self.wait_s):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[question.id]
            self._tell()

    def new(self, session_id: str, kind: Literal["approval", "question"], subject: str) -> PendingQuestion:
        """Make a question that says only this much."""
        now = self._clock.now()
        until = iso(now + timedelta(seconds=self.wait_s))
        return PendingQuestion(
            self._clock.new_id(), kind, session_id, "", "", subject, (), (), "", iso(now), until
        )

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()


def fitting(question: PendingQuestion, answer: str, more: Given | None) -> Given:
    """Give an answer as it counts. Raises ApiError for one that does not fit what was asked."""
    given = msgspec.structs.replace(more or Given(), answer=answer[:_MOST_TEXT])
    if question.kind == "approval":
        _check(question, given)
    return msgspec.structs.replace(given, reason=given.reason[:_MOST_TEXT])


def _check(question: PendingQuestion, given: Given) -> None:
    """Raise ApiError for an answer that does not fit what was asked."""
    if given.digest and given.digest != question.digest:
        raise ApiError(409, "this is not what was looked at; look again", code="question_differs")
    if given.answer not in _ANSWERS:
        raise ApiError(400, f"answer must be one of {', '.join(_ANSWERS)}", param="answer")
    if given.answer in ("session", "always") and not question.grant:
        raise ApiError(400, "this can only be allowed once", param="answer")
    if not 0 <= given.scope < max(len(question.scopes), 1):
        raise ApiError(400, "there is no such scope", param="scope")


def _draft(request: ApprovalRequest) -> str:
    """Give what of a call can be edited in a page; empty where a page would not give it back as it is."""
    text = editable(request).text
    plain = text.replace("\t", " ")
    return text if len(text) <= _MOST_TEXT and visible(plain, _MOST_TEXT) == plain else ""


class Asker:
    """The person of one turn: whoever answers its questions. A client that can show no question has the model
    told so at once (`may_clarify` False), and the model then asks in its answer."""

    def __init__(self, questions: Questions, session_id: str, *, may_clarify: bool) -> None:
        self._questions = questions
        self._session_id = session_id
        self._may_clarify = may_clarify

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one action."""
        plain = self._questions.new(request.session_id, "approval", request.subject)
        shown = worded(request)
        question = msgspec.structs.replace(
            plain,
            call_id=request.call_id,
            tool=request.tool,
            reasons=request.reasons,
            grant=request.grant,
            title=shown.title,
            body=shown.body,
            scopes=tuple(scope.text for scope in request.scopes),
            folder=request.folder,
            opening=request.opening,
            digest=request.digest,
            keeps=tuple(scope.always for scope in request.scopes),
            draft=_draft(request),
        )
        given = await self._questions.whole(question, request)
        for known in ("once", "session", "always", "no"):
            if given is not None and given.answer == known:
                return Reply(known, given.scope, given.reason, given.arguments).short
        return None

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Put the model's question."""
        if not self._may_clarify:
            return None
        plain = self._questions.new(self._session_id, "question", question)
        return await self._questions.ask(msgspec.structs.replace(plain, choices=tuple(choices)))
