"""Questions to people in a chat: buttons that are bound to one request and count for permitted people only.

A button carries a random word that stands for the request in this process. After a restart the turn asks
again, and old buttons say so. `/approve` and `/deny` answer the latest question of the room. What somebody
asks for who may not decide goes to somebody who may, or is denied with a line that says so.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from whet.channels.markup import fenced
from whet.channels.pieces import pieces
from whet.contract.channels import MessageButton, Outgoing, PlatformLimits
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import QuestionText, Row, worded
from whet.visible import visible

Post = Callable[[Sequence[Outgoing]], Awaitable[None]]
_ROWS = 120  # of what would be written; "Show all" gives the rest
_ALL_CHARS = 200_000  # of a chat nobody reads more
_DECIDED_CHARS = 120  # for how it was decided, and by whom
_ANSWERS: dict[str, Answer] = {"once": "once", "session": "session", "always": "always", "no": "no"}
_SAID = {
    "1": "Allowed once",
    "s": "Allowed in this conversation",
    "a": "Always allowed",
    "n": "Denied",
    "v": "Shown",
}
_ONCE = (MessageButton("Allow once", "1", "good"), "once")
_SESSION = (MessageButton("This conversation", "s"), "session")
_ALWAYS = (MessageButton("Always", "a"), "always")
_NO = (MessageButton("Deny", "n", "bad"), "no")
_ALL = (MessageButton("Show all", "v"), "all")


class QuestionRoute(msgspec.Struct, frozen=True):
    """Where a question is put: a conversation, the room that it is in (channel and chat), how to post there,
    and what its platform takes."""

    chat_id: int
    room: tuple[str, str]
    post: Post
    limits: PlatformLimits


Find = Callable[[], Awaitable[QuestionRoute | None]]
"""Gives where somebody is asked who may decide; None where there is nobody."""


class _Question:
    """A question that waits: what each button stands for; `open_ended` ones also take the next message."""

    def __init__(self, desk: QuestionRoute, text: str, answers: dict[str, str], *, open_ended: bool) -> None:
        self.chat_id = desk.chat_id
        self.room = desk.room
        self.text = text
        self.answers = answers
        self.open_ended = open_ended
        self.words = ""
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class ChatQuestions:
    """The open questions of one process."""

    def __init__(self) -> None:
        self._open: dict[str, _Question] = {}

    def chat_of(self, data: str) -> int:
        """Give the conversation whose question a button belongs to; 0 where it is over."""
        question = self._open.get(data.partition(":")[0])
        return question.chat_id if question else 0

    def shown(self, data: str) -> str:
        """Give the text of the question that a button belongs to; empty where it is over."""
        question = self._open.get(data.partition(":")[0])
        return question.text if question and not question.answer.done() else ""

    def is_decided(self, data: str) -> bool:
        """Whether a button's question has its answer and is about to go."""
        question = self._open.get(data.partition(":")[0])
        return question is not None and question.answer.done()

    def pressed(self, chat_id: int, data: str, *, may: bool) -> str:
        """Take a press in and say what came of it; `may`: whoever pressed may decide."""
        word, _, mark = data.partition(":")
        question = self._open.get(word)
        if question is None or question.chat_id != chat_id or question.answer.done():
            return "This question is over."
        if mark not in question.answers:
            return "This question is over."
        if not may and not question.open_ended:
            return "You may not decide this."
        question.answer.set_result(question.answers[mark])
        return f"Noted: {question.answers[mark]}." if question.open_ended else f"{_SAID[mark]}."

    def decide(self, room: tuple[str, str], mark: str, *, may: bool, words: str = "") -> str:
        """Answer the latest decision that waits in a room, by a command; `words` say why it is a no."""
        found = [
            (word, question.chat_id)
            for word, question in self._open.items()
            if question.room == room and not question.open_ended and not question.answer.done()
        ]
        if not found:
            return "Nothing waits for a decision here."
        word, chat_id = found[-1]
        self._open[word].words = words if may else ""
        return self.pressed(chat_id, f"{word}:{mark}", may=may)

    def replied(self, chat_id: int, text: str) -> bool:
        """Take a message as the answer to the model's question; False where none waits."""
        for question in self._open.values():
            if question.chat_id == chat_id and question.open_ended and not question.answer.done():
                question.answer.set_result(text)
                return True
        return False

    async def put(
        self,
        desk: QuestionRoute,
        texts: Sequence[str],
        buttons: Sequence[tuple[MessageButton, str]],
        *,
        open_ended: bool,
    ) -> str:
        """Put a question and wait for its answer, however long. Each button comes with what it stands for;
        they stand under the last of the messages that the question takes."""
        word = secrets.token_urlsafe(9)
        marks = {button.data: stands_for for button, stands_for in buttons}
        question = self._open[word] = _Question(desk, texts[-1], marks, open_ended=open_ended)
        shown = tuple(
            MessageButton(button.label, f"{word}:{button.data}", button.style) for button, _ in buttons
        )
        try:
            await desk.post([*map(Outgoing, texts[:-1]), Outgoing(texts[-1], shown)])
            said = await question.answer
            return f"{said}\n{question.words}" if question.words else said
        finally:
            del self._open[word]


class ChatPerson:
    """The person of a turn, who is called `name`, asked at `desk`. `find` says where somebody is asked who
    may decide; None where the person may."""

    def __init__(self, asking: ChatQuestions, desk: QuestionRoute, name: str, find: Find | None) -> None:
        self._asking = asking
        self._desk = desk
        self._name = name
        self._find = find

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Show the exact action with buttons; None at once where nobody can be asked who may decide."""
        tool = f"`{visible(request.tool)}`"
        desk = self._desk if self._find is None else await self._find()
        if desk is None:
            text = f"{tool} needs somebody's permission, and nobody who may give it can be asked. Denied."
            await self._desk.post([Outgoing(text)])
            return None
        asks = "May I run this?"
        if desk.room != self._desk.room:
            asks = f"{visible(self._name, 60)} asks: may I run this?"
            await self._desk.post([Outgoing(f"{tool} needs permission; whoever may give it was asked.")])
        question = worded(request)
        said = await self._ask(desk, request, asks, question.folded(_ROWS))
        if said == "all":
            said = await self._ask(desk, request, asks, _whole(question))
        answer, _, words = said.partition("\n")
        return Reply(_ANSWERS[answer], words=words).short if answer in _ANSWERS else None

    async def _ask(
        self, desk: QuestionRoute, request: ApprovalRequest, asks: str, rows: tuple[Row, ...]
    ) -> str:
        question = worded(request)
        lines = [f"**{asks}** {question.title}", fenced("\n".join(row.text for row in rows))]
        lines += [f"• {row.text}" for row in question.notes if row.kind == "reason"]
        buttons = [_ONCE, _SESSION, _ALWAYS, _NO] if request.grant else [_ONCE, _SESSION, _NO]
        buttons += [_ALL] if rows != _whole(question) else []
        if request.scopes:
            lasts = "This conversation and always" if request.grant else "This conversation"
            lines.append(f"{lasts}: `{visible(request.scopes[0].text, 200)}`")
        if not desk.limits.has_buttons:
            more = " `/approve show` shows all first." if _ALL in buttons else ""
            lines.append(f"Answer `/approve`, `/approve session`, `/approve always` or `/deny`.{more}")
        texts = pieces("\n".join(lines), desk.limits.message_chars - _DECIDED_CHARS)
        return await self._asking.put(desk, texts, buttons, open_ended=False)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Put the model's question; the answer is a button or the next message."""
        buttons = [
            (MessageButton(visible(choice, 60), str(n)), choice) for n, choice in enumerate(choices[:8])
        ]
        lines = [visible(question)]
        if not self._desk.limits.has_buttons:
            lines += [f"• {button.label}" for button, _ in buttons]
        texts = pieces("\n".join(lines), self._desk.limits.message_chars - _DECIDED_CHARS)
        return await self._asking.put(self._desk, texts, buttons, open_ended=True)


def _whole(question: QuestionText) -> tuple[Row, ...]:
    """Give all of a question, as far as a chat can hold it."""
    rows = question.body
    while sum(len(row.text) for row in rows) > _ALL_CHARS:
        if len(rows) <= _ROWS:
            return question.folded(_ROWS)
        rows = question.folded(max(len(rows) // 2, _ROWS))
    return rows
