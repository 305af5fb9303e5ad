"""A permission question at a terminal: its rows, its options, and what a lasting yes covers.

The one-shot and the chat share it, and draw the rows themselves. `whet.typed_answer` says which text is which
option. It imports neither rich nor prompt_toolkit.
"""

from __future__ import annotations

import msgspec

from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.contract.tools import tags_of
from whet.question import (
    FOLDED_ROWS,
    QuestionText,
    Row,
    build_question,
)
from whet.terminal.diff_view import PaintedRow, paint_rows
from whet.terminal.themes import Theme
from whet.terminal.wording import exact
from whet.typed_answer import ALWAYS, BECAUSE, EDIT, NO, ONCE, SESSION, VIEW, AnswerOption
from whet.visible import visible

UNSEEN = "not an answer yet: only a part was shown. Now all of it was; answer again"
ANSWER_PROMPT = "A number or words; Enter is no: "
"""What stands where the answer is typed."""
REASON_PREFIX = "  - "
_SHELL_FILE = "command.sh"
_FIRST_SCOPE = 2


class TerminalDecision:
    """The state of one approval request while the person answers it."""

    def __init__(self, request: ApprovalRequest, theme: Theme, max_rows: int = FOLDED_ROWS) -> None:
        self.max_rows = max_rows
        self.request = request
        self.question: QuestionText = build_question(request)
        self.is_shown_whole: bool = not self.is_long
        self._theme = theme
        self._scope = 0
        self._sessions = [
            msgspec.structs.replace(SESSION, number=str(number))
            if number == _FIRST_SCOPE
            else AnswerOption(f"session {number}", number=str(number), lasts=True)
            for number in range(_FIRST_SCOPE, _FIRST_SCOPE + max(len(request.scopes), 1))
        ]
        self._lasting = [
            ALWAYS if number == _FIRST_SCOPE else AnswerOption(f"always {number}", lasts=True)
            for number, scope in enumerate(request.scopes, _FIRST_SCOPE)
            if scope.always and request.grant
        ]
        self._no = str(_FIRST_SCOPE + len(self._sessions))

    def choices(self) -> list[str]:
        """Return the numbered answers, one a line, and a line that says what else can be typed."""
        scopes = [scope.text for scope in self.request.scopes] or [self.request.grant]
        rows = ["  1  Yes, once"]
        for option, scope in zip(self._sessions, scopes, strict=True):
            covers = f": {exact(visible(scope))}" if scope else ""
            if self.request.scopes and not self.request.grant:
                covers = ", exactly this again"
            rows.append(f"  {option.number}  Yes, for this session{covers}  ({option.number} and Enter)")
        rows.append(f"› {self._no}  No  (Enter, Esc)")
        return [*rows, f"     {' · '.join(self._other_answers())}"]

    def _other_answers(self) -> list[str]:
        answers = ["Tab edits the call, then it runs"]
        if self.is_long:
            answers.append("v shows all")
        answers += ["yes: as 1", "other words: no, and why"]
        if self._lasting:
            names = ", ".join(f'"{option.name}"' for option in self._lasting)
            numbers = ", ".join(
                option.name.partition(" ")[2] or str(_FIRST_SCOPE) for option in self._lasting
            )
            answers.append(f"{names}: as {numbers} in every session here; undo: whet approvals")
        return answers

    @property
    def is_long(self) -> bool:
        """Whether some rows of the question are folded."""
        return self.question.fold_rows(self.max_rows) != self.question.body

    def rows(self, *, unfold: bool = False) -> list[PaintedRow]:
        """Return the rows between the question's title and its choices. `unfold` includes folded rows."""
        body = self.question.body if unfold else self.question.fold_rows(self.max_rows)
        path = _SHELL_FILE if "command" in tags_of(self.request.tool) else ""
        exact_body = [Row(row.kind, exact(row.text)) for row in body]
        notes = [
            PaintedRow(REASON_PREFIX if row.kind == "reason" else "  ", exact(row.text))
            for row in self.question.notes
            if row.kind != "scope"
        ]
        return [*paint_rows(exact_body, self._theme, path), *notes]

    def options(self) -> tuple[AnswerOption, ...]:
        """Return the options that may be typed; "always" only if the request says what it would cover."""
        once = msgspec.structs.replace(ONCE, number="1")
        no = msgspec.structs.replace(NO, number=self._no)
        return (once, *self._sessions, *self._lasting, no, BECAUSE, EDIT, VIEW)

    def grant(self, option: str) -> Answer | None:
        """Return the yes that an option is, and remember the scope that it names; None for any other."""
        name, _, number = option.partition(" ")
        if name != "once" and name != "session" and name != "always":
            return None
        self._scope = int(number) - _FIRST_SCOPE if number else 0
        return name

    def reply(self, answer: Answer) -> Reply:
        """Return the answer for the scope that was named."""
        return Reply(answer, self._scope)

    def scope_text(self) -> str:
        """Return the text of the chosen scope, or of the request's grant if it has no scopes."""
        return self.request.scopes[self._scope].text if self.request.scopes else self.request.grant
