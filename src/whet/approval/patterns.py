"""Rules and grants as text: `tool`, or `tool(pattern)`, with `*` and `?` as wildcards.

A backslash before a wildcard escapes it. A final ` *` also matches no arguments at all. This module does
not judge risk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from whet.contract.errors import ConfigError
from whet.contract.forms import RULE
from whet.contract.tools import tags_of
from whet.contract.wildcards import has_wildcard, matches

DENY_HINT = "read(...) and write(...) protect files, terminal(...) commands"


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

    @property
    def names_program(self) -> bool:
        """Whether a rule for commands begins with a program, not with a wildcard or a redirection."""
        return bool(self.pattern) and not self.pattern.startswith(("*", "?", "<", ">"))

    def fits(self, tool: str, texts: Iterable[str]) -> bool:
        """Return whether the rule applies to a call of `tool` whose text has any of these forms."""
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
            f"{origin}: {text!r} is not a rule",
            hint="write tool or tool(pattern), e.g. terminal(git commit *), write_file(docs/*), web_fetch",
        )
    return PatternRule(match[1], match[2] and match[2].strip(), text)


def find_unknown(texts: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the rules whose tool has none of these names, so that they hold nothing. A server's tool
    (`mcp__...`), and `read(...)` and `write(...)`, which are about files, are known."""
    unknown: list[str] = []
    for text in texts:
        rule = parse_rule(text, "a rule")
        is_about_files = rule.tool in ("read", "write") and rule.pattern is not None
        is_of_server = rule.tool.startswith("mcp__")
        if not is_about_files and not is_of_server and not any(matches(rule.tool, name) for name in names):
            unknown.append(text)
    return unknown
