"""The scope of "yes, for this session" for a shell command: the program and its subcommand, or the exact
text.

A grant is a pattern as in a rule, `git commit *`. Text that must match exactly has its wildcards escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.approval.risk import Level
from whet.approval.scopes import escape_pattern
from whet.late import late_pattern
from whet.shell import programs
from whet.shell.words import Word

# These programs depend entirely on their operands, so only a script's name or `-m module` is general enough.
_EXACT = late_pattern(
    r"(python|pypy|node|nodejs|ruby|perl|php|lua|deno|bun|Rscript|sh|bash|zsh|dash|ksh|fish)[\d.]*|xargs|find|env|awk|sed|eval"
    r"|gawk|curl|wget|tee|tar|rsync|parallel|watch|source|\.|vim?|nvim|ed|ex|socat|nc|jq|fd|dd|psql|mysql|sqlite3"
)
_GENERAL = late_pattern(r"[\w./-]+")


def grant_for(program: str, words: Sequence[Word], text: str, level: Level) -> str:
    """Return the pattern that a grant for this command stores, or an empty string if it needs none."""
    if level == "safe":
        return ""
    if level != "normal" or _EXACT.fullmatch(program.rsplit("/", 1)[-1]):
        return (
            _script(program, words) if level == "normal" and _script(program, words) else escape_pattern(text)
        )
    if "verb-tells" in programs.program(program).kinds:
        first = words[0] if words else None
        if first is None or first.dynamic or not re.fullmatch(r"[a-z][\w:-]*", first.text):
            return escape_pattern(text)
        if first.text not in ("run", "exec", "x"):
            return f"{escape_pattern(program)} {first.text} *"
        # The inner command decides; if its name is not at this position, only the exact text is allowed.
        if len(words) < 2 or words[1].dynamic or words[1].glob or words[1].text.startswith("-"):
            return escape_pattern(text)
        return f"{escape_pattern(program)} {first.text} {escape_pattern(words[1].normal_form)} *"
    return f"{escape_pattern(program)} *"


def _script(program: str, words: Sequence[Word]) -> str:
    """Return `python script.py *` or `python -m module *`, or an empty string if the operands are code."""
    if (
        not re.match(r"(python|pypy|node|ruby|perl|php|bash|sh|zsh)", program)
        or not words
        or words[0].dynamic
    ):
        return ""
    first = words[0].text
    if first == "-m" and len(words) > 1 and not words[1].dynamic and program.startswith(("python", "pypy")):
        return f"{escape_pattern(program)} -m {escape_pattern(words[1].normal_form)} *"
    if first.startswith("-") or not _GENERAL.fullmatch(first):
        return ""
    return f"{escape_pattern(program)} {escape_pattern(first)} *"
