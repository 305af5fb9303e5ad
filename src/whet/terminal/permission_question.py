"""A permission question at a terminal: its rows, its options, and what a lasting yes covers.

The one-shot and the chat share it, and draw the rows themselves. `whet.typed_answer` says which text is which
option. It imports neither rich nor prompt_toolkit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import (
    FOLDED_ROWS,
    QuestionText,
    Row,
    RowKind,
    build_question,
    count_folded_lines,
    fold_row,
    parse_row,
)
from whet.typed_answer import ALWAYS, BECAUSE, EDIT, NO, ONCE, SESSION, VIEW, AnswerOption

_COLOURS: dict[RowKind, str] = {"added": "32", "removed": "31", "hunk": "36", "file": "1", "fold": "2"}
_BAR = "  | "


class TerminalDecision:
    """The state of one approval request while the person answers it."""

    def __init__(self, request: ApprovalRequest, max_rows: int = FOLDED_ROWS) -> None:
        self.max_rows = max_rows
        self.request = request
        self.question: QuestionText = build_question(request)
        self.scope: int = 0

    def keys(self, width: int) -> str:
        """Return the options for the line where one is typed, on two lines if `width` is too narrow."""
        always = " always" if self.request.grant else ""
        more = " [v]iew all" if self.is_long else ""
        which = f" [1-{len(self.request.scopes)}] choose" if len(self.request.scopes) > 1 else ""
        aside, answers = f"[e]dit{more}{which} no [b]ecause", f"[o]nce yes [s]ession{always} [N]o "
        fits = len(aside) + len(answers) + 3 <= width
        return f"{aside} · {answers}" if fits else f"{aside}\n{answers}"

    @property
    def is_long(self) -> bool:
        """Whether some rows of the question are folded."""
        return self.question.fold_rows(self.max_rows) != self.question.body

    def rows(self, *, unfold: bool = False) -> list[tuple[str, Row]]:
        """Return the rows below the question's title, each with its prefix. `unfold` includes folded rows."""
        body = self.question.body if unfold else self.question.fold_rows(self.max_rows)
        prefixed_rows = [(_BAR, row) for row in body]
        for row in self.question.notes:
            if row.kind == "scope":
                is_chosen = row.text.startswith(f"{self.scope + 1} ") and len(self.request.scopes) > 1
                prefixed_rows.append(("› " if is_chosen else "  ", row))
            else:
                prefixed_rows.append(("  - " if row.kind == "reason" else "  ", row))
        return prefixed_rows

    def options(self) -> tuple[AnswerOption, ...]:
        """Return the options that may be typed; "always" only if the request says what it would cover."""
        always = (ALWAYS,) if self.request.grant else ()
        numbers = [str(number) for number in range(1, len(self.request.scopes) + 1)]
        scopes = [AnswerOption(number, number) for number in numbers]
        return (ONCE, SESSION, *always, NO, BECAUSE, EDIT, VIEW, *scopes)

    def choose(self, option: str) -> bool:
        """Mark the scope whose number the option is; False for any other option."""
        if not (option.isascii() and option.isdecimal()):
            return False
        self.scope = int(option) - 1
        return True

    def reply(self, answer: Answer) -> Reply:
        """Return the answer for the scope that is marked."""
        return Reply(answer, self.scope)

    def scope_text(self) -> str:
        """Return the text of the chosen scope, or of the request's grant if it has no scopes."""
        return self.request.scopes[self.scope].text if self.request.scopes else self.request.grant


def has_colour(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the terminal shows colours."""
    environ = os.environ if environ is None else environ
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb", "unknown")


def paint_row(row: Row, text: str, *, colour: bool) -> str:
    """Return a row's text in its colour."""
    code = _COLOURS.get(row.kind, "")
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text


def diff_lines(diff: str, max_rows: int) -> list[Row]:
    """Return a diff as at most `max_rows` rows; if it is longer, the last row counts the rest, with the lines
    that a diff which was cut before counts itself."""
    rows = [parse_row(line) for line in diff.split("\n")] if diff else []
    if len(rows) <= max_rows:
        return rows
    omitted = len(rows) - max_rows + 1 + max(count_folded_lines(rows[-1]) - 1, 0)
    return [*rows[: max_rows - 1], fold_row(omitted)]
