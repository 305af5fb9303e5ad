"""Questions of turns that a team's workers run. A worker asks; any serving process can pass on the answer.

The waiting questions are in the database. A question ends with its turn, or when its worker has stopped.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from whet.clock import Clock
from whet.contract.errors import ConfigError, NotFound
from whet.contract.protocols import ApprovalRequest, Person
from whet.contract.texts import from_json
from whet.serve.questions import (
    Asker,
    PendingQuestion,
    QuestionReply,
    Questions,
    apply_draft,
    check_reply,
)
from whet.sqlite.lane import ScopedWrite
from whet.store.team import TeamDatabase
from whet.team import orders
from whet.team.events import TurnMark
from whet.team.queue import TakenTurn

_encode = msgspec.json.Encoder().encode


class TeamQuestions(Questions):
    """The questions of a whole team, as a serving process sees them."""

    def __init__(self, database: TeamDatabase, clock: Clock, wait_s: float) -> None:
        super().__init__(clock, wait_s)
        self._database = database

    def pending(self) -> list[PendingQuestion]:
        """Return the waiting questions, oldest first."""
        bodies = self._database.read_now(orders.list_open_questions)
        return [*super().pending(), *(from_json(body, PendingQuestion) for body in bodies)]

    async def answer(
        self, question_id: str, answer: str, more: QuestionReply | None = None
    ) -> PendingQuestion:
        """Answer a question. `more` are the other fields of the reply.

        Raises NotFound if the question does not wait, ApiError if the answer is invalid for it.
        """
        if question_id in self._waiting:
            return await super().answer(question_id, answer, more)
        body = await self._database.read(lambda db: orders.find_question(db, question_id))
        question = None if body is None else from_json(body, PendingQuestion)
        if question is not None:
            reply_json = _encode(check_reply(question, answer, more)).decode()
            write = ScopedWrite(question_id, lambda db: orders.answer_question(db, question_id, reply_json))
            if await self._database.write(write):
                return question
        raise NotFound("there is no such question, or it was answered", hint="GET /api/approvals lists them")

    def handle_notification(self, session_names: str) -> None:
        """Notify the listeners, because a question may have been asked or answered."""
        self._notify()


class WorkerQuestions:
    """The questions of the turns that run in this worker."""

    def __init__(self, database: TeamDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[QuestionReply]] = {}

    def person_of(self, turn: TakenTurn) -> Person | None:
        """Return the person who answers a turn's questions, or None if nobody can."""
        options = turn.options
        if not options.answer_wait_s:
            return None
        questions = _TurnQuestions(self, turn.mark, self._clock, options.answer_wait_s)
        return Asker(questions, turn.session_id, may_clarify=options.may_clarify)

    async def read_answers(self) -> None:
        """Read new answers from the database and pass them to the questions. Raises StoreError."""
        if not self._waiting:
            return
        read = partial(orders.list_answers, question_ids=[*self._waiting])
        for question_id, reply_json in await self._database.read(read):
            future = self._waiting.get(question_id)
            if future is not None and not future.done():
                future.set_result(from_json(reply_json, QuestionReply))

    async def ask(self, mark: TurnMark, question: PendingQuestion, wait_s: float) -> QuestionReply | None:
        """Ask a question and return the reply, or None if none came in time."""
        body = _encode(question).decode()
        self._waiting[question.id] = future = asyncio.get_running_loop().create_future()
        try:
            write = ScopedWrite(
                question.id, lambda db: orders.ask_question(db, mark, question.id, body, wait_s)
            )
            await self._database.write(write)
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[question.id]
            self._database.submit(
                ScopedWrite(question.id, lambda db: orders.remove_question(db, question.id))
            )


class _TurnQuestions(Questions):
    """The questions of one turn, asked to the whole team."""

    def __init__(self, worker: WorkerQuestions, mark: TurnMark, clock: Clock, wait_s: float) -> None:
        super().__init__(clock, wait_s)
        self._worker = worker
        self._mark = mark

    async def wait_for_reply(
        self, question: PendingQuestion, request: ApprovalRequest | None = None
    ) -> QuestionReply | None:
        """Ask a question and return the whole reply, or None if none came in time."""
        reply = await self._worker.ask(self._mark, question, self.wait_s)
        try:
            return None if reply is None else apply_draft(reply, request)
        except ConfigError as error:
            return QuestionReply("no", error.message)
