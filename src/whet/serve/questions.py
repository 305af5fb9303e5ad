"""Questions of running turns that wait for a person, who answers with the owner's token.

Without an answer in time, the call is denied. Nothing here is durable: a question ends with its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from whet.amending import apply_edit, find_editable
from whet.clock import Clock, iso
from whet.contract.errors import NotFound
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.log import mask_values
from whet.question import Row, build_question, describe_scope
from whet.serve.wire import ApiError
from whet.visible import WHOLE, visible

_ANSWERS = ("once", "session", "always", "no")
_MAX_TEXT = 20_000


class PendingQuestion(msgspec.Struct, frozen=True):
    """A waiting question: an action to approve (`tool`, `subject`, `reasons`), or a question in words
    (`subject`, `choices`).

    - `title`, `body`: the question as a person reads it, including any text that would be written
    - `grant`: the scope of "session" and "always", empty if neither is offered
    - `scopes`: all scopes that a lasting approval may have; `covers` describes each in words, and `keeps`
      says whether it may be kept for good
    - `undo`: whether and how the effects can be undone
    - `opening`: the path or host that a sandbox would be opened for
    - `digest`: the hash that an approval is bound to
    - `draft`: the part of the call that a person may edit on a page, empty if a page can't show it exactly
    """

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
    covers: tuple[str, ...] = ()
    undo: str = ""


class QuestionReply(msgspec.Struct, frozen=True):
    """An answer to a question.

    - `reason`: why the person denies
    - `scope`: the index of the scope of a lasting approval
    - `arguments`: arguments to ask about instead of the shown ones; or `draft`: the draft as the person
      edited it
    - `digest`: if set, the digest of the question that the person saw
    """

    answer: str = ""
    reason: str = ""
    scope: int = 0
    arguments: dict[str, object] | None = None
    draft: str | None = None
    digest: str = ""


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question, the future for its answer, and the gate's request if it is about a call."""

    question: PendingQuestion
    future: asyncio.Future[QuestionReply | None]
    request: ApprovalRequest | None = None


class Questions:
    """The questions of one process. `listeners` are called when a question is added or removed."""

    def __init__(self, clock: Clock, wait_s: float) -> None:
        self._clock = clock
        self.wait_s = wait_s
        self._waiting: dict[str, OpenQuestion] = {}
        self.listeners: list[Callable[[], None]] = []

    def pending(self) -> list[PendingQuestion]:
        """Return the waiting questions, oldest first."""
        return [entry.question for entry in self._waiting.values()]

    async def answer(
        self, question_id: str, answer: str, more: QuestionReply | None = None
    ) -> PendingQuestion:
        """Answer a question. `more` are the other fields of the reply.

        Raises NotFound if the question does not wait, ApiError if the answer is invalid for it.
        """
        entry = self._waiting.get(question_id)
        if entry is None or entry.future.done():  # a second answer must not seem to succeed
            raise NotFound(
                "there is no such question, or it was answered", hint="GET /api/approvals lists them"
            )
        reply = check_reply(entry.question, answer, more)
        entry.future.set_result(apply_draft(reply, entry.request))
        return entry.question

    async def ask(self, question: PendingQuestion) -> str | None:
        """Ask a question and return the answer, or None if none came in time."""
        reply = await self.wait_for_reply(question)
        return None if reply is None else reply.answer

    async def wait_for_reply(
        self, question: PendingQuestion, request: ApprovalRequest | None = None
    ) -> QuestionReply | None:
        """Ask a question and return the whole reply, or None if none came in time."""
        future: asyncio.Future[QuestionReply | None] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = OpenQuestion(question, future, request)
        self._notify()
        try:
            async with asyncio.timeout(self.wait_s):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[question.id]
            self._notify()

    def new_question(
        self, session_id: str, kind: Literal["approval", "question"], subject: str
    ) -> PendingQuestion:
        """Return a new question with only a subject."""
        now = self._clock.now()
        until = iso(now + timedelta(seconds=self.wait_s))
        return PendingQuestion(
            self._clock.new_id(), kind, session_id, "", "", subject, (), (), "", iso(now), until
        )

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()


def apply_draft(reply: QuestionReply, request: ApprovalRequest | None) -> QuestionReply:
    """Return the reply with the arguments that its draft gives the call, if it has one. Raises
    ConfigError."""
    if request is None or reply.draft is None or reply.answer != "once":
        return reply
    return msgspec.structs.replace(reply, arguments=apply_edit(request, reply.draft))


def check_reply(question: PendingQuestion, answer: str, more: QuestionReply | None) -> QuestionReply:
    """Return the reply with its answer filled in. Raises ApiError if it is invalid for the question."""
    reply = msgspec.structs.replace(more or QuestionReply(), answer=answer[:_MAX_TEXT])
    if question.kind == "approval":
        _check_approval(question, reply)
    return msgspec.structs.replace(reply, reason=reply.reason[:_MAX_TEXT])


def _check_approval(question: PendingQuestion, reply: QuestionReply) -> None:
    if reply.digest and reply.digest != question.digest:
        raise ApiError(409, "this is not what was looked at; look again", code="question_differs")
    if reply.answer not in _ANSWERS:
        raise ApiError(400, f"answer must be one of {', '.join(_ANSWERS)}", param="answer")
    if reply.answer in ("session", "always") and not question.grant:
        raise ApiError(400, "this can only be allowed once", param="answer")
    if not 0 <= reply.scope < max(len(question.scopes), 1):
        raise ApiError(400, "there is no such scope", param="scope")


def _draft(request: ApprovalRequest) -> str:
    """Return the part of a call that a page can edit, or "" if a page would not return it exactly."""
    text = find_editable(request).text
    plain = text.replace("\t", " ")
    return text if len(text) <= _MAX_TEXT and visible(plain, _MAX_TEXT) == plain else ""


class Asker:
    """The person of one turn, who answers its questions.

    `may_clarify` False: the client can't show questions, so the model gets no answer and asks in its text.
    """

    def __init__(self, questions: Questions, session_id: str, *, may_clarify: bool) -> None:
        self._questions = questions
        self._session_id = session_id
        self._may_clarify = may_clarify

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one action."""
        plain = self._questions.new_question(request.session_id, "approval", request.subject)
        wording = build_question(request)
        question = msgspec.structs.replace(
            plain,
            call_id=request.call_id,
            tool=request.tool,
            reasons=request.reasons,
            grant=request.grant,
            title=wording.title,
            body=wording.body,
            scopes=tuple(visible(scope.text, WHOLE) for scope in request.scopes),
            folder=visible(request.folder, WHOLE),
            opening=visible(request.opening, WHOLE),
            digest=request.digest,
            keeps=tuple(scope.always for scope in request.scopes),
            draft=_draft(request),
            covers=tuple(map(describe_scope, request.scopes)),
            undo=request.undo,
        )
        reply = await self._questions.wait_for_reply(question, request)
        for answer in ("once", "session", "always", "no"):
            if reply is not None and reply.answer == answer:
                return Reply(answer, reply.scope, reply.reason, reply.arguments).short
        return None

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question."""
        if not self._may_clarify:
            return None
        plain = self._questions.new_question(self._session_id, "question", mask_values(question))
        shown_choices = tuple(map(mask_values, choices))
        return await self._questions.ask(msgspec.structs.replace(plain, choices=shown_choices))
