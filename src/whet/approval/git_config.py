"""Read the settings in the text of one git configuration file, as git-config(1) describes it.

It saves starting git for repositories whose settings run nothing. What git would refuse, or a file that
includes others, is left to git itself.
"""

from __future__ import annotations

import re

from whet.late import late_pattern

_TOKEN = late_pattern(
    r"""(?:\ufeff)?(?:
        [ \t\r\n]+ | [\#;][^\n]*
      | \[ (?P<section>[A-Za-z0-9.-]+) (?:[ \t\r]+ "(?P<part>(?:[^"\\\n]|\\[^\n])*+)")? \]
      | (?P<key>[A-Za-z][A-Za-z0-9-]*+) [ \t]*+
        (?: = (?P<value>(?:[^"\\\n\#;]|\\[ntb"\\\n]|"(?:[^"\\\n]|\\[ntb"\\\n])*+")*+) (?:[\#;][^\n]*)? )?
        (?=\n|\Z)
    )""",
    re.VERBOSE,
)
_ESCAPED = late_pattern(r"\\(.)|\"", re.DOTALL)
_SLASHED = late_pattern(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


def parse_git_config(data: bytes) -> list[tuple[str, str]] | None:
    """Return the settings: key in small letters, value ("" if it has none). None: only git can tell."""
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    if "\0" in text or "\ufeff" in text[1:]:
        return None
    settings: list[tuple[str, str]] = []
    section, at = "", 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if name := match["section"]:
            part = match["part"]
            section = name if part is None else f"{name}.{_SLASHED.sub(lambda match: match[1], part)}"
        elif key := match["key"]:
            if not section or section.lower() == "include" or section.lower().startswith("includeif"):
                return None
            settings.append((f"{section}.{key}".lower(), _value(match["value"] or "")))
    return settings


def _value(raw: str) -> str:
    """Return a value without quotes and escapes; blanks around it count only within quotes."""
    raw = raw.strip(" \t\r")
    if '"' not in raw and "\\" not in raw:
        return raw
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else "", raw)
