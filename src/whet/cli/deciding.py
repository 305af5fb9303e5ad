"""A permission question at a terminal: its rows, its options, and what a lasting yes covers.

The one-shot and the chat share it, and draw the rows themselves. `whet.typed_answer` says which text is which
option. It imports neither rich nor prompt_toolkit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import FOLDED_ROWS, QuestionText, Row, RowKind, row_of, worded
from whet.typed_answer import ALWAYS, BECAUSE, EDIT, NO, ONCE, SESSION, VIEW, AnswerOption

_COLOURS: dict[RowKind, str] = {"added": "32", "removed": "31", "hunk": "36", "file": "1", "fold": "2"}
_BAR = "  | "


class Deciding:
    """One question while it is answered."""

    def __init__(self, request: ApprovalRequest, most: int = FOLDED_ROWS) -> None:
        self.most = most
        self.request = request
        self.question: QuestionText = worded(request)
        self.scope: int = 0

    def keys(self, width: int) -> str:
        """Return the options for the line where one is typed, on two lines if `width` is too narrow."""
        always = " always" if self.request.grant else ""
        more = " [v]iew all" if self.is_long else ""
        which = f" [1-{len(self.request.scopes)}] choose" if len(self.request.scopes) > 1 else ""
        aside, answers = f"[e]dit{more}{which} no [b]ecause", f"[o]nce [s]ession{always} [N]o "
        fits = len(aside) + len(answers) + 3 <= width
        return f"{aside} · {answers}" if fits else f"{aside}\n{answers}"

    @property
    def is_long(self) -> bool:
        """Whether some of the question is folded away."""
        return self.question.folded(self.most) != self.question.body

    def rows(self, *, whole: bool = False) -> list[tuple[str, Row]]:
        """Give the question's rows below its title, each with what stands before it."""
        body = self.question.body if whole else self.question.folded(self.most)
        shown = [(_BAR, row) for row in body]
        for row in self.question.notes:
            if row.kind == "scope":
                is_chosen = row.text.startswith(f"{self.scope + 1} ") and len(self.request.scopes) > 1
                shown.append(("› " if is_chosen else "  ", row))
            else:
                shown.append(("  - " if row.kind == "reason" else "  ", row))
        return shown

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

    def covers(self) -> str:
        """Say what a lasting yes covers now."""
        return self.request.scopes[self.scope].text if self.request.scopes else self.request.grant


def has_colour(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a terminal wants colours."""
    environ = os.environ if environ is None else environ
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb", "unknown")


def coloured(row: Row, text: str, *, colour: bool) -> str:
    """Give a row's text in its colour."""
    code = _COLOURS.get(row.kind, "")
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text


def diff_lines(diff: str, most: int) -> list[Row]:
    """Give a diff as rows, at most `most` of them; the last then says how many there are more."""
    rows = [row_of(line) for line in diff.split("\n")] if diff else []
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], Row("fold", f"… {len(rows) - most + 1:,} more lines")]
