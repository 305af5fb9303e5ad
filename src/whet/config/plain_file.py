"""Read a config.yaml of plain lines: sections, fields, one word or one quoted text each, comments.

Most files are no more than that, and YAML's own reader costs every start 25 to 35 ms of CPU. What is not
surely read here as YAML reads it is not read here at all.
"""

from __future__ import annotations

import re

import msgspec

_COMMENT = r"(?: +#[ -~]*)? *"
_WORD = r"(?P<word>[A-Za-z0-9/][A-Za-z0-9_./:@+-]*(?<!:))"
_VALUE = rf"(?:'(?P<single>[ -&(-~]*)'|\"(?P<double>[ !#-\[\]-~]*)\"|{_WORD})"
_LINE = re.compile(
    rf"(?:(?P<section>[a-z][a-z0-9_]*):{_COMMENT})"
    rf"|(?:(?P<indent> +)(?P<field>[a-z][a-z0-9_]*): +{_VALUE}{_COMMENT})"
    r"|(?: *(?:#[ -~]*)?)"
)
_NULLS = ("null", "Null", "NULL")


class PlainField(msgspec.Struct, frozen=True):
    """A field, its line (from 1) and its text; None where the file gives no value."""

    name: str
    line: int
    value: str | tuple[str, ...] | None


class PlainSection(msgspec.Struct, frozen=True):
    """A section and its fields, in the file's order."""

    name: str
    line: int
    fields: list[PlainField]


def read_plain(text: str) -> list[PlainSection] | None:
    """Give the sections of `text`; None where there is anything in it that only YAML can read, or refuse."""
    sections: list[PlainSection] = []
    names: set[str] = set()
    indent = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        name = found["section"] or found["field"]
        if not name:
            continue
        is_section = found["indent"] is None
        if is_section:
            full, indent = name, ""
            sections.append(PlainSection(name, number, []))
        elif not sections or found["word"] in _NULLS or found["indent"] != (indent or found["indent"]):
            return None
        else:
            full, indent = f"{sections[-1].name}.{name}", found["indent"]
            value = next(text for text in found.group("single", "double", "word") if text is not None)
            sections[-1].fields.append(PlainField(name, number, value))
        if full in names:
            return None
        names.add(full)
    return sections
