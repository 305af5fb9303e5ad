"""A decision at a terminal, key by key: what a yes covers, whether all is shown, why it is a no.

The one-shot and the chat share it; how a row gets onto the screen is theirs. It imports neither rich nor
prompt_toolkit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import FOLDED_ROWS, QuestionText, Row, RowKind, row_of, worded

ANSWERS: dict[str, Answer] = {"o": "once", "s": "session", "a": "always", "n": "no"}
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
        """Give the keys that answer, for the line where one is typed; two lines where it is too narrow."""
        always = " [a]lways" if self.request.grant else ""
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

    def accepts(self, key: str) -> bool:
        """Whether a key means something here."""
        is_scope = key.isascii() and key.isdecimal() and 1 <= int(key) <= len(self.request.scopes)
        return is_scope or key.lower() in ("b", "e", "v") or answer_of(key, self.request) is not None

    def choose(self, key: str) -> bool:
        """Take the number of a scope; False for any other key."""
        if not (key.isascii() and key.isdecimal() and 1 <= int(key) <= len(self.request.scopes)):
            return False
        self.scope = int(key) - 1
        return True

    def reply(self, answer: Answer) -> Reply:
        """Give an answer for the scope that is chosen."""
        return Reply(answer, self.scope)

    def covers(self) -> str:
        """Say what a lasting yes covers now."""
        return self.request.scopes[self.scope].text if self.request.scopes else self.request.grant


def answer_of(key: str, request: ApprovalRequest) -> Answer | None:
    """Give the answer that a key stands for, None for another key. There is an always only where the
    request says what that would allow.
    """
    answer = ANSWERS.get(key.lower())
    return None if answer == "always" and not request.grant else answer


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
