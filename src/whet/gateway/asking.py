"""Ask people in a chat for permission, or put the model's questions to them.

If a person may not decide, somebody with that right is asked; if nobody can be asked, the call is denied.
After a restart the turn asks again, and old buttons have no effect. `open_questions.py` has the rules for
answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from whet.channels.pieces import split_message
from whet.contract.channels import MessageButton, Outgoing
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.gateway.open_questions import DECISIONS, ChatQuestions, QuestionRoute
from whet.markdown import code_block, code_span, escape_markdown
from whet.question import TAKE_BACK, QuestionText, Row, build_question, describe_scope, label_note
from whet.typed_answer import may_count
from whet.visible import WHOLE, visible, visible_line

_ROWS = 120  # rows of the text to be written; "Show all" shows the rest
_ALL_CHARS = 200_000  # more is not readable in a chat
_DECIDED_CHARS = 120  # room for the decision and the person who made it
_ANSWERS: dict[str, Answer] = {"once": "once", "session": "session", "always": "always", "no": "no"}
_ABOUT_CHARS = 100
_LABEL_CHARS = 60
_NAME_CHARS = 60
_MAX_CHOICES = 8
_MARKS = {"once": "1", "session": "s", "always": "a", "no": "n"}
_ALLOW_ONCE = (MessageButton("Allow once", "1", "good"), "once")
_ALLOW_SESSION = (MessageButton("This conversation", "s"), "session")
_ALLOW_ALWAYS = (MessageButton("Always", "a"), "always")
_NO = (MessageButton("Deny", "n", "bad"), "no")
_SHOW_ALL = (MessageButton("Show all", "v"), "all")


Find = Callable[[], Awaitable[QuestionRoute | None]]
"""Finds the route to a person who may decide, or returns None."""


class ChatPerson:
    """The person of a turn. Questions are posted through `route`.

    `find` returns the route to a person who may decide; it is None if this person may. `time_zone` is empty
    if it is the owner's.
    """

    def __init__(
        self,
        questions: ChatQuestions,
        route: QuestionRoute,
        name: str,
        find: Find | None,
        time_zone: str = "",
    ) -> None:
        self.time_zone = time_zone
        self._questions = questions
        self._route = route
        self._shown_name = escape_markdown(visible_line(name, _NAME_CHARS))
        self._find = find

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Show the exact action with buttons. Returns None at once if no one who may decide can be asked."""
        tool = f"`{visible(request.tool)}`"
        route = self._route if self._find is None else await self._find()
        if route is None:
            text = f"{tool} needs somebody's permission, and nobody who may give it can be asked. Denied."
            await self._route.post([Outgoing(text)])
            return None
        asks = "May I run this?"
        if route.room != self._route.room:
            asks = f"{self._shown_name} asks: may I run this?"
            route = msgspec.structs.replace(route, required_name=self._questions.new_name())
            await self._route.post([Outgoing(f"{tool} needs permission; whoever may give it was asked.")])
        question = build_question(request)
        reply_text = await self._ask(route, request, asks, question.fold_rows(_ROWS))
        while reply_text == "all":
            reply_text = await self._ask(route, request, asks, full_rows(question))
        answer, _, words = reply_text.partition("\n")
        if route.room != self._route.room:
            decision = DECISIONS[_MARKS[answer]]
            await self._route.post([Outgoing(f"{decision}: {self._summary(request)}")])
        return Reply(_ANSWERS[answer], words=words).short if answer in _ANSWERS else None

    async def _ask(
        self, route: QuestionRoute, request: ApprovalRequest, asks: str, rows: tuple[Row, ...]
    ) -> str:
        question = build_question(request)
        lines = [
            f"**{asks}** {escape_markdown(question.title)}",
            code_block("\n".join(row.text for row in rows)),
        ]
        notes = [row for row in question.notes if row.kind in ("reason", "undo")]
        lines += [f"• {escape_markdown(label_note(row))}" for row in notes]
        is_whole = rows == question.body
        allowing = (
            [_ALLOW_ONCE, _ALLOW_SESSION, _ALLOW_ALWAYS] if request.grant else [_ALLOW_ONCE, _ALLOW_SESSION]
        )
        buttons = [button for button in allowing if may_count(button[1], is_shown_whole=is_whole)] + [_NO]
        buttons += [_SHOW_ALL] if rows != full_rows(question) else []
        if request.scopes and is_whole:
            lasts = "This conversation (until Whet restarts)"
            lasts += f" and always (in this folder; {TAKE_BACK})" if request.grant else ""
            lines += [f"{lasts}: not asked again to", code_block(describe_scope(request.scopes[0]))]
        write = "Or write" if route.limits.has_buttons else "Write"
        name = f"{route.required_name} " if route.required_name else ""
        always = f", `{name}always`" if request.grant else ""
        words = (
            f"`{name}once` or `{name}yes`, `{name}session`{always}, `{name}no`" if is_whole else f"`{name}no`"
        )
        if _SHOW_ALL in buttons:
            lines.append("This is only a part, so it can't be allowed yet.")
            words = f"`{name}show` (all of it), `{name}no`"
        elif not is_whole:
            lines.append("This is too long to be shown whole here, so it can only be denied.")
        lines.append(f"{write} {words}.")
        texts = split_message("\n".join(lines), route.limits.message_chars - _DECIDED_CHARS)
        summary = self._summary(request)
        return await self._questions.ask(route, texts, buttons, open_ended=False, summary=summary)

    def _summary(self, request: ApprovalRequest) -> str:
        """Describe the action in a few words, with the name of the person whose turn asks."""
        first, _, more = request.subject.partition("\n")
        subject = f"{code_span(visible(first, _ABOUT_CHARS))}{' …' if more else ''}"
        action = escape_markdown(build_question(request).title) if request.changes else subject
        return f"{action} (asked by {self._shown_name})"

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question. The answer is a button or the next message."""
        buttons = [
            (MessageButton(visible(choice, _LABEL_CHARS), str(n)), choice)
            for n, choice in enumerate(choices[:_MAX_CHOICES])
        ]
        lines = [visible(question, WHOLE)]
        if not self._route.limits.has_buttons or any(len(choice) > _LABEL_CHARS for choice in choices):
            lines += [f"• {visible(choice, WHOLE)}" for _, choice in buttons]
        texts = split_message("\n".join(lines), self._route.limits.message_chars - _DECIDED_CHARS)
        summary = visible(question, _ABOUT_CHARS)
        return await self._questions.ask(self._route, texts, buttons, open_ended=True, summary=summary)


def full_rows(question: QuestionText) -> tuple[Row, ...]:
    """Return all rows of a question, folded if they are too long for a chat."""
    rows = question.body
    while sum(len(row.text) for row in rows) > _ALL_CHARS:
        if len(rows) <= _ROWS:
            return question.fold_rows(_ROWS)
        rows = question.fold_rows(max(len(rows) // 2, _ROWS))
    return rows
