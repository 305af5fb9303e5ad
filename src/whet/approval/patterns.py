"""Rules and grants as text: `tool`, or `tool(pattern)`, with `*` and `?` as wildcards.

A backslash before a wildcard escapes it. A final ` *` also matches no arguments at all. This module does
not judge risk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import msgspec

from whet.contract.errors import ConfigError
from whet.contract.forms import RULE
from whet.contract.tools import tags_of


class PatternRule(msgspec.Struct, frozen=True):
    """One rule: a tool name, which may have wildcards, and a pattern. None as pattern matches every call."""

    tool: str
    pattern: str | None
    source: str

    @property
    def names_what_runs(self) -> bool:
        """Whether the pattern says which program (or file, or host) it applies to, not just anything."""
        if not self.pattern:
            return False
        first = self.pattern.split(" ", 1)[0]
        if tags_of(self.tool) & {"command", "background"}:
            return not has_wildcard(first)
        return not has_wildcard(first[:3])

    def fits(self, tool: str, texts: Iterable[str]) -> bool:
        """Whether the rule applies to a call of `tool` whose text has any of these forms."""
        return matches(self.tool, tool) and (
            self.pattern is None or any(matches(self.pattern, text) for text in texts)
        )

    @property
    def is_exact(self) -> bool:
        """Whether the pattern matches a single text only."""
        return self.pattern is not None and not has_wildcard(self.pattern)


def parse_rule(text: str, origin: str) -> PatternRule:
    """Parse a rule. `origin` is the setting that contains it. Raises ConfigError naming both."""
    match = RULE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{origin}: {text!r} is no rule",
            hint="write tool or tool(pattern), e.g. terminal(git commit *), write_file(docs/*), web_fetch",
        )
    return PatternRule(match[1], match[2] and match[2].strip(), text)


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern has a wildcard that is not escaped."""
    return re.search(r"[*?]", re.sub(r"\\.", "", pattern, flags=re.DOTALL)) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole of `text`."""
    return _compile_pattern(pattern).fullmatch(text) is not None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern so that its time grows with pattern and text, however many stars it has.

    What a star has passed over to reach the text behind it is final ("?>"): the next star can take up any
    more. Only the last star tries all places, for the pattern's end.
    """
    tail = ""
    if pattern.endswith(" *") and len(pattern) > 2:
        pattern, tail = pattern[:-2], r"(?:\s.*)?"
    parts = [""]
    for match in re.finditer(r"\\(.)|([*]+)|(\?)|([^\\*?]+|\\$)", pattern, re.DOTALL):
        if match[2]:
            parts.append("")
        else:
            parts[-1] += "." if match[3] else re.escape(match[1] or match[4])
    first, *others = parts
    last = f".*?{others.pop()}" if others else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in others) + last + tail, re.DOTALL)
