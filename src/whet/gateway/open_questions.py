"""The open questions in the chats of one process, and the rules for answers by buttons or words.

A person with the right to approve decides on permissions. Questions of the model or of an MCP server can also
be answered by the person whose turn asks. If several questions are open, words must begin with the name of
one; otherwise the reply asks which one is meant. A question from another room always needs its name, so that
ordinary messages don't answer it.

`whet.typed_answer` defines which words are a yes. A button's data begins with a random word by which its
question is found.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from whet.contract.channels import MessageButton, Outgoing, PlatformLimits
from whet.typed_answer import ALWAYS, AnswerOption, read_line

Post = Callable[[Sequence[Outgoing]], Awaitable[Sequence[int]]]
"""Queues messages and returns their numbers in the outbox. Durable on return."""
Arrived = Callable[[Sequence[int]], bool]
"""Returns whether the platform has confirmed all messages with these numbers."""
Precedes = Callable[[str, Sequence[int]], bool]
"""Returns whether a person's message, given by its platform id, is older than one with these numbers."""
DECISIONS = {
    "1": "Allowed once",
    "s": "Allowed in this conversation",
    "a": "Always allowed",
    "n": "Denied",
    "v": "Shown",
}
"""The decisions on a permission, by the mark of the button."""
OVER = "This question is over."
REFUSED = "You may not decide this."
NOTHING = "Nothing waits for a decision here."
NOT_OFFERED = "That is not offered for this question."
NOT_SHOWN = "Only a part of this was shown, so it can't be allowed yet. Write `show` to see all of it."
NOT_ARRIVED = (
    "A part of this question has not arrived here, so it can't be allowed yet. Write `show` to see all of it."
)
_ALLOWING_MARKS = frozenset("1sa")
_MARKS = {"once": "1", "session": "s", "always": "a", "no": "n", "show": "v"}
_OPTIONS = (
    AnswerOption("once", aliases=("yes",)),
    AnswerOption("session"),
    ALWAYS,
    AnswerOption("no", aliases=("n", "deny")),
    AnswerOption("show"),
)
_LABELLED_OPTIONS = (
    AnswerOption("once", aliases=("yes", "allow once")),
    AnswerOption("session", aliases=("this conversation",)),
    *_OPTIONS[2:-1],
    AnswerOption("show", aliases=("show all",)),
)
_LETTERS, _DIGITS = "bcdfghjkmnpqrstvwxz", "23456789"


def _stop_nothing() -> None:
    """Do nothing."""


def _never_precedes(_ref: str, _messages: Sequence[int]) -> bool:
    return False


class QuestionRoute(msgspec.Struct, frozen=True):
    """The conversation that a question is posted to.

    `room` is its channel and chat, `limits` are those of its platform. With a `required_name`, which is set
    if the turn is in another room, words must begin with it to be an answer.
    """

    chat_id: int
    room: tuple[str, str]
    post: Post
    arrived: Arrived
    limits: PlatformLimits
    precedes: Precedes = _never_precedes
    required_name: str = ""


class ChatReply(msgspec.Struct, frozen=True):
    """The reply to words that answered a question, which may be empty. `stops` is set if they stop the
    turn."""

    text: str
    stops: bool = False


class _Question:
    """A question that waits for `decision`.

    `answer_by_mark` maps the marks of buttons to answers. `reason` holds the person's words with a decision.
    An `open_ended` question accepts any words. A message that is older than the question can't answer it, and
    a yes counts only if all messages of the question have arrived.
    """

    def __init__(self, route: QuestionRoute, name: str, summary: str, *, open_ended: bool) -> None:
        self.chat_id = route.chat_id
        self.room = route.room
        self.name = name
        self.needs_name = bool(route.required_name)
        self.summary = summary
        self.open_ended = open_ended
        self.options = _LABELLED_OPTIONS if route.limits.has_buttons else _OPTIONS
        self.text = ""
        self.is_posted = False
        self._messages: Sequence[int] = ()
        self._arrived = route.arrived
        self._precedes = route.precedes
        self.answer_by_mark: dict[str, str] = {}
        self.reason = ""
        self.decision: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def is_option(self, text: str) -> bool:
        """Return whether a text is exactly one of the answers that the question shows."""
        return not read_line(text, self.options).words

    def may_take(self, chat_id: int, text: str, *, may_approve: bool) -> bool:
        """Return whether a message without a question's name can answer this question."""
        if self.chat_id != chat_id:
            return may_approve and not self.open_ended and self.is_option(text)
        return (self.open_ended or may_approve) and (not self.needs_name or self.is_option(text))

    def note_posted(self, messages: Sequence[int]) -> None:
        """Note the messages as which the question was posted."""
        self._messages = messages
        self.is_posted = True

    def can_be_answered_by(self, ref: str) -> bool:
        """Return whether a message came after the question, so that it can answer it without its name."""
        return self.is_posted and not self._precedes(ref, self._messages)

    def refusal(self, mark: str, *, is_pressed: bool = False) -> str:
        """Return why an answer can't be accepted, or an empty string. If a button was pressed, the last
        message, which has the buttons, has arrived."""
        if mark not in self.answer_by_mark:
            is_part = "1" not in self.answer_by_mark and mark in _ALLOWING_MARKS
            return self._with_name(NOT_SHOWN) if is_part else NOT_OFFERED
        if self.open_ended or mark not in _ALLOWING_MARKS:
            return ""
        messages = self._messages[:-1] if is_pressed else self._messages
        return "" if self._arrived(messages) else self._with_name(NOT_ARRIVED)

    def _with_name(self, text: str) -> str:
        return text.replace("`show`", f"`{self.name} show`") if self.needs_name else text

    @property
    def answer_hint(self) -> str:
        """The commands or words that answer this question by its name."""
        return f"`{self.name} ...`" if self.open_ended else f"`/approve {self.name}` or `/deny {self.name}`"


class ChatQuestions:
    """The open questions of one process."""

    def __init__(self) -> None:
        self._open: dict[str, _Question] = {}

    def chat_of(self, data: str) -> int:
        """Return the conversation whose question a button belongs to; 0 if it is over."""
        question = self._open.get(data.partition(":")[0])
        return question.chat_id if question else 0

    def question_text(self, data: str) -> str:
        """Return the text of the question that a button belongs to; empty if it is over."""
        question = self._open.get(data.partition(":")[0])
        return question.text if question and not question.decision.done() else ""

    def summary_of(self, data: str) -> str:
        """Return the summary of a button's question; empty if it is over."""
        question = self._open.get(data.partition(":")[0])
        return question.summary if question else ""

    def is_decided(self, data: str) -> bool:
        """Return whether a button's question has just been answered."""
        question = self._open.get(data.partition(":")[0])
        return question is not None and question.decision.done()

    def is_waiting(self, room: tuple[str, str]) -> bool:
        """Return whether a question is open in a room."""
        return bool(self._open_in(room))

    def handle_press(self, chat_id: int, data: str, *, may_approve: bool, is_own: bool = False) -> str:
        """Handle a pressed button and return the reply. `is_own` is set if the turn of the person who pressed
        asks."""
        word, _, mark = data.partition(":")
        question = self._open.get(word)
        if question is None or question.chat_id != chat_id or question.decision.done():
            return OVER
        if mark not in question.answer_by_mark:
            return OVER
        if not may_approve and not (is_own and question.open_ended):
            return REFUSED
        if refusal := question.refusal(mark, is_pressed=True):
            return refusal
        question.decision.set_result(question.answer_by_mark[mark])
        return f"Noted: {question.answer_by_mark[mark]}." if question.open_ended else f"{DECISIONS[mark]}."

    def split_name(self, room: tuple[str, str], text: str) -> tuple[str, str]:
        """Split text into the name of an open question of the room and the rest; the name is empty if the
        text does not begin with one."""
        first, _, answer_text = text.strip().partition(" ")
        is_name = any(question.name == first.lower().rstrip(":") for question in self._open_in(room))
        return (first.lower().rstrip(":"), answer_text.strip()) if is_name else ("", text.strip())

    def decide(
        self, room: tuple[str, str], mark: str, *, may_approve: bool, name: str = "", words: str = ""
    ) -> str:
        """Decide the permission that waits in a room, by a command, and return the reply.

        `name` selects one of several, `words` are the reason for a no.
        """
        questions = [question for question in self._open_in(room) if not question.open_ended]
        if name:
            questions = [question for question in questions if question.name == name]
        if not questions:
            return NOTHING
        if not may_approve:
            return REFUSED
        if len(questions) > 1:
            return _choice_text(questions)
        return _decide(questions[0], mark, words) if questions[0].is_posted else NOTHING

    def take_reply(
        self,
        chat_id: int,
        room: tuple[str, str],
        text: str,
        *,
        may_approve: bool,
        ref: str = "",
        stop: Callable[[], object] = _stop_nothing,
    ) -> ChatReply | None:
        """Handle a message as the answer to an open question. Returns None if it is an ordinary message.

        `ref` is its platform id. `stop` cancels the turn; it is called before the question is answered, so
        that the stopped turn sends no further request.
        """
        if not text.strip():
            return None
        name, answer_text = self.split_name(room, text)
        open_questions = self._open_in(room)
        if name:
            question = next(question for question in open_questions if question.name == name)
            if not may_approve and not (question.open_ended and question.chat_id == chat_id):
                return ChatReply(REFUSED)
            if not answer_text:
                return ChatReply(_choice_text([question]))
            return _answer_in_words(question, answer_text, None if question.needs_name else stop)
        candidates = [
            question
            for question in open_questions
            if question.may_take(chat_id, text, may_approve=may_approve)
        ]
        # A question that needs its name is never answered without it, but makes the others ambiguous.
        if all(question.needs_name for question in candidates):
            return None
        if len(candidates) > 1:
            return ChatReply(_choice_text(candidates))
        if candidates[0].can_be_answered_by(ref):
            return _answer_in_words(candidates[0], text, stop)
        return None

    async def ask(
        self,
        route: QuestionRoute,
        texts: Sequence[str],
        buttons: Sequence[tuple[MessageButton, str]],
        *,
        open_ended: bool,
        summary: str = "",
    ) -> str:
        """Post a question as messages with `texts`, and wait for its answer without a limit. `buttons` are
        pairs of a button and its answer; they are shown under the last message."""
        word = secrets.token_urlsafe(9)
        question = self._open[word] = _Question(
            route, route.required_name or self.new_name(), summary, open_ended=open_ended
        )
        question.text = texts[-1]
        question.answer_by_mark = {button.data: answer for button, answer in buttons}
        if not open_ended:
            # `show` has no button, but must work if a part has not arrived.
            question.answer_by_mark["v"] = "all"
        bound_buttons = tuple(
            MessageButton(button.label, f"{word}:{button.data}", button.style) for button, _ in buttons
        )
        try:
            messages = [*map(Outgoing, texts[:-1]), Outgoing(texts[-1], bound_buttons)]
            question.note_posted(await route.post(messages))
            answer = await question.decision
            return f"{answer}\n{question.reason}" if question.reason else answer
        finally:
            del self._open[word]

    def _open_in(self, room: tuple[str, str]) -> list[_Question]:
        questions = [question for question in self._open.values() if question.room == room]
        return [question for question in questions if not question.decision.done()]

    def new_name(self) -> str:
        """Return a name that no open question has. It is random, so that old names are unknown after a
        restart."""
        names = {question.name for question in self._open.values()}
        while True:
            name = "".join(map(secrets.choice, (_LETTERS, _DIGITS, _LETTERS, _DIGITS)))
            if name not in names:
                return name


def _answer_in_words(question: _Question, text: str, stop: Callable[[], object] | None) -> ChatReply:
    """Answer a question with words. If `stop` is None, as for a turn in another room, "stop" only denies."""
    if question.open_ended:
        question.decision.set_result(text)
        return ChatReply("")
    typed = read_line(text, question.options)
    stops = False
    if typed.stops and stop is not None:
        stop()
        stops = True
    return ChatReply(_decide(question, _MARKS[typed.option], typed.words), stops)


def _decide(question: _Question, mark: str, words: str) -> str:
    """Decide a permission, and return the reply."""
    if refusal := question.refusal(mark):
        return refusal
    question.reason = words
    # `stop` may have cancelled the turn, and the question with it.
    if not question.decision.done():
        question.decision.set_result(question.answer_by_mark[mark])
    return f"{DECISIONS[mark]}: {question.summary}" if question.summary else f"{DECISIONS[mark]}."


def _choice_text(questions: Sequence[_Question]) -> str:
    """Return a text that asks which question is meant, and says how to answer each."""
    count = len(questions)
    head = f"{count} questions are open here. Say which one:" if count > 1 else "Answer with:"
    return "\n".join([head, *(f"• {question.answer_hint} — {question.summary}" for question in questions)])
