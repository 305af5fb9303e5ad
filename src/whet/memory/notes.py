"""Parse and edit the text of MEMORY.md and USER.md: their entries, and the section for pitfalls.

A file is a person's Markdown: an entry is a list item or a paragraph, and an edit changes only its lines.
This module reads and writes no files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import accumulate, dropwhile, takewhile, zip_longest

import msgspec

from whet.contract.texts import flat, short
from whet.memory.folding import fold
from whet.memory.requests import FILES as FILES
from whet.memory.requests import MemoryRequest, Refused, Repeated, Target

PITFALLS = "pitfalls"
_TITLES: dict[Target, str] = {"memory": "# Memory", "user": "# User"}
_PITFALLS_LINE = "## Pitfalls"
PITFALL_PREFIX = "Pitfall: "
_PITFALL = re.compile(r"\s*(?:[-*]\s+)?pitfall\s*:\s*", re.IGNORECASE)
_BULLET = re.compile(r"^[-*+]\s+")
_MAX_ENTRY_CHARS = 700
# The end of an entry whose evidence is a file's or a command's text and not the person's words.
_SEEN = re.compile(r"\((?:checked )?\d{4}-\d\d-\d\d\)$")


class NoteEntry(msgspec.Struct, frozen=True):
    """One entry: its text without the bullet, its section's heading in lower case, and the indexes of its
    first and last line."""

    text: str
    section: str
    first: int
    last: int

    @property
    def is_pitfall(self) -> bool:
        """Whether it is in the section for pitfalls."""
        return self.section == PITFALLS

    @property
    def statement(self) -> str:
        """The entry's text. A pitfall begins with the prefix "Pitfall: "."""
        return f"{PITFALL_PREFIX}{self.text}" if self.is_pitfall else self.text


class EntryChange(msgspec.Struct, frozen=True):
    """One entry's change. `before` is empty for a new entry, `after` for a removed one."""

    before: str
    after: str

    @property
    def action(self) -> str:
        """add, replace or remove."""
        return "add" if not self.before else "replace" if self.after else "remove"


def parse_entries(text: str) -> list[NoteEntry]:
    """Return the entries of a file, in order."""
    parsed: list[NoteEntry] = []
    lines = text.split("\n")
    section, start, in_comment = "", -1, False

    def close(end: int) -> None:
        nonlocal start
        if start >= 0:
            parsed.append(NoteEntry(_entry_text(lines[start:end]), section, start, end - 1))
        start = -1

    for number, line in enumerate(lines):
        if in_comment or line.startswith("<!--"):
            close(number)
            in_comment = "-->" not in line
        elif heading := re.match(r"#+\s+(.*)", line):
            close(number)
            section = heading[1].strip().lower() if line.startswith("##") else ""
        elif not line.strip():
            close(number)
        elif _BULLET.match(line):
            close(number)
            start = number
        elif start < 0:
            start = number
    close(len(lines))
    return parsed


def plan_change(text: str, request: MemoryRequest, limit_chars: int) -> tuple[str, EntryChange]:
    """Return the text after the requested change, and the change itself. Raises Refused."""
    entry = None if request.action == "add" else find_entry(text, request.old_text)
    edit = EntryChange(entry.statement if entry else "", "")
    if request.action != "remove":
        content = request.content
        if entry.is_pitfall if entry else request.target == "memory" and _PITFALL.match(content):
            content = f"{PITFALL_PREFIX}{clean(_PITFALL.sub('', content, count=1))}"
        else:
            content = clean(content)
        edit = EntryChange(edit.before, content)
        if fold(edit.before) == fold(content):
            raise Repeated("That is what the entry says already", hint="Nothing has to be saved.")
    after = apply_change(text, request.target, edit)
    if edit.after:
        check_room(text, after, request.target, limit_chars)
    return after, edit


def apply_change(text: str, target: Target, change: EntryChange) -> str:
    """Apply one change to the text, word for word. A change that is already applied does nothing. Raises
    Refused."""
    existing = {entry.statement: entry for entry in parse_entries(text)}
    entry = existing.get(change.before) if change.before else None
    if change.after in existing and entry is None:
        return text
    if entry is None:
        if change.before and change.after:
            raise Refused("The entry has changed since", hint="Look at it again.")
        return append_entry(text, target, change.after) if change.after else text
    if not change.after or change.after in existing:
        return _remove_entry(text, entry)
    if entry.is_pitfall and not change.after.startswith(PITFALL_PREFIX):
        return append_entry(_remove_entry(text, entry), target, change.after)
    lines = text.split("\n")
    new = change.after.removeprefix(PITFALL_PREFIX) if entry.is_pitfall else change.after
    return _join([*lines[: entry.first], *_format_entry(new), *lines[entry.last + 1 :]])


def diff_entries(before: str, after: str) -> list[EntryChange]:
    """Return how the entries of `after` differ from those of `before`, in order. Moved entries count as
    unchanged."""
    old = [entry.statement for entry in parse_entries(before)]
    new = [entry.statement for entry in parse_entries(after)]
    edits: list[EntryChange] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        removed = [text for text in old[old_start:old_end] if text not in new]
        added = [text for text in new[new_start:new_end] if text not in old]
        edits += [EntryChange(*pair) for pair in zip_longest(removed, added, fillvalue="")]
    return edits


def apply_changes(text: str, target: Target, edits: Sequence[EntryChange]) -> tuple[str, list[EntryChange]]:
    """Apply changes to the text. Returns the new text and the changes that could not be applied."""
    failed: list[EntryChange] = []
    for edit in edits:
        try:
            text = apply_change(text, target, edit)
        except Refused:
            failed.append(edit)
    return text, failed


def check_room(text: str, after: str, target: Target, limit_chars: int) -> None:
    """Raise Refused if the edited file would be over its limit and larger than before."""
    size = len(after.strip())
    if size <= limit_chars or size <= len(text.strip()):
        return
    spare = find_droppable(text, size - limit_chars)
    offer = " | ".join(" ".join(entry.split())[:120] for entry in spare)
    raise Refused(
        f"{FILES[target].rpartition('/')[2]} is full: {describe_use(text, limit_chars)} "
        f"({limit_chars:,} characters), and this needs {size - limit_chars} more",
        hint=f"Replace or remove first what is out of date or in a skill. The longest entries: {offer}",
    )


def append_entry(text: str, target: Target, statement: str) -> str:
    """Return the text with this entry added at the end of its section. Neither the entry nor the file's size
    is checked."""
    is_pitfall = target == "memory" and statement.startswith(PITFALL_PREFIX)
    entry = statement.removeprefix(PITFALL_PREFIX) if is_pitfall else statement
    lines = (text.rstrip("\n") or f"{_TITLES[target]}\n").split("\n")
    if is_pitfall and not any(map(_is_pitfalls_heading, lines)):
        lines += ["", _PITFALLS_LINE, ""]
    index = _find_end(lines, is_pitfall=is_pitfall)
    bullet = _format_entry(entry)
    if index and lines[index - 1].startswith("#"):
        bullet = ["", *bullet]
    if index < len(lines) and lines[index].strip():
        bullet = [*bullet, ""]
    return _join([*lines[:index], *bullet, *lines[index:]])


def _remove_entry(text: str, entry: NoteEntry) -> str:
    """Return the text without this entry. The last pitfall is removed together with the section's heading."""
    lines = text.split("\n")
    head, tail = lines[: entry.first], lines[entry.last + 1 :]
    if entry.is_pitfall:
        head = _remove_empty_heading(head, tail)
    return _join([*head, *tail])


def _remove_empty_heading(head: list[str], tail: list[str]) -> list[str]:
    """Remove the pitfalls' heading from the end of `head` if its section is now empty."""
    next_line = next((line for line in tail if line.strip()), "")
    lines = _strip_end(head)
    if lines[-1:] != [_PITFALLS_LINE] or (next_line and not re.match(r"#+\s", next_line)):
        return head
    return [*_strip_end(lines[:-1]), *([""] if tail and tail[0].strip() else [])]


def _strip_end(lines: Sequence[str]) -> list[str]:
    """Return the lines without the blank ones at their end."""
    return [*dropwhile(lambda line: not line.strip(), reversed(lines))][::-1]


def find_entry(text: str, part: str) -> NoteEntry:
    """Return the entry that contains `part`, ignoring case and white space. Raises Refused if none or several
    entries do."""
    folded = fold(part)
    if not folded:
        raise Refused("old_text is empty", hint="Give a unique part of the entry.")
    all_entries = parse_entries(text)
    matches = [entry for entry in all_entries if folded in fold(entry.statement)]
    exact = [entry for entry in matches if folded in (fold(entry.text), fold(entry.statement))]
    if len(matches) == 1 or len(exact) == 1:
        return (exact or matches)[0]
    if matches:
        listing = "; ".join(short(entry.text) for entry in matches[:4])
        raise Refused(f"old_text fits {len(matches)} entries: {listing}", hint="Give a longer part of one.")
    near = _find_nearest(folded, [entry.text for entry in all_entries])
    raise Refused(
        "No entry holds that old_text",
        hint=f"The nearest entry is: {short(near, 200)}" if near else "There is no entry yet.",
    )


def clean(content: str) -> str:
    """Return an entry's text as it is stored, without bullet, blank lines and surrounding blanks. Raises
    Refused if it is empty, too long or a heading."""
    text = _entry_text([line.strip() for line in content.splitlines() if line.strip()] or [""])
    if not text:
        raise Refused("The content is empty", hint="Say in one or two lines what to remember.")
    if text.startswith("#"):
        raise Refused("An entry can't be a heading", hint="Write it as one plain line.")
    if len(text) > _MAX_ENTRY_CHARS:
        raise Refused(
            f"The entry has {len(text)} characters; at most {_MAX_ENTRY_CHARS}",
            hint="Say it shorter, or make it a skill.",
        )
    return text


def describe_use(text: str, limit_chars: int) -> str:
    """Return how full a file is, as in `37% used`."""
    return f"{round(100 * len(text.strip()) / limit_chars)}% used"


def choose_entries(text: str, limit_chars: int) -> list[NoteEntry]:
    """Return the entries for a new session's prompt, in the file's order: all if the file is within the
    limit, else those that fit.

    Pitfalls get half of the limit, and other entries the remaining space. A person's own words take
    precedence over the text of files and commands, and later entries over earlier ones, which they may
    contradict.
    """
    entries = parse_entries(text)
    if len(text.strip()) <= limit_chars:
        return entries
    chosen: set[int] = set()
    chars_left = limit_chars
    for is_pitfall, reserved_chars in ((True, limit_chars // 2), (False, 0)):
        for entry in sorted(entries, key=lambda entry: (bool(_SEEN.search(entry.text)), -entry.first)):
            chars = len(entry.text) + len("- \n")
            if entry.is_pitfall is is_pitfall and chars_left - chars >= reserved_chars:
                chars_left -= chars
                chosen.add(entry.first)
    return [entry for entry in entries if entry.first in chosen]


def shorten_notes(target: Target, text: str, limit_chars: int) -> str:
    """Return a file's text for another program's model. If it is too long, return the entries that fit and
    the number of the others."""
    chosen = choose_entries(text, limit_chars)
    hidden_count = len(parse_entries(text)) - len(chosen)
    if not hidden_count:
        return text
    lines = [f"- {flat(entry.statement)}" for entry in chosen]
    return "\n".join([*lines, f"({hidden_count:,} more entries of {FILES[target]} are not shown)", ""])


def describe_left_out(target: Target, text: str, prompt_chars: int) -> str:
    """Return the line about entries that are not in every session's prompt, or "" if there are none."""
    total, read_count = len(parse_entries(text)), len(choose_entries(text, prompt_chars))
    if read_count == total:
        return ""
    return (
        f"sessions begin with {read_count:,} of the {total:,} entries of {FILES[target]};"
        " the others come with messages that they are about"
    )


def describe_overfull(target: Target, text: str, limit_chars: int) -> str:
    """Return the line for people about a file that is over its limit, or "" if it is not."""
    size = len(text.strip())
    if size <= limit_chars:
        return ""
    return (
        f"{FILES[target]} has {size:,} characters, more than memory.{target}_chars ({limit_chars:,}):"
        " no note can be added"
    )


def find_droppable(text: str, wanted_chars: int) -> list[str]:
    """Return up to four of the longest entries, no more than are needed to free `wanted_chars`."""
    longest = sorted((entry.text for entry in parse_entries(text)), key=len, reverse=True)[:4]
    freed_chars = [0, *accumulate(len(entry) + 3 for entry in longest)]
    return [entry for entry, freed in zip(longest, freed_chars, strict=False) if freed < wanted_chars]


def _find_end(lines: Sequence[str], *, is_pitfall: bool) -> int:
    """Return the index of the line before which a new entry is inserted."""
    if is_pitfall:
        start = next(index for index, line in enumerate(lines) if _is_pitfalls_heading(line)) + 1
    else:
        start = 1 if lines and lines[0].startswith("# ") else 0
    section = takewhile(lambda line: not re.match(r"#+\s", line), lines[start:])
    return start + len(_strip_end([*section]))


def _is_pitfalls_heading(line: str) -> bool:
    return re.match(r"##+\s+pitfalls\s*$", line, re.IGNORECASE) is not None


def _format_entry(entry: str) -> list[str]:
    first, *more = entry.split("\n")
    return [f"- {first}", *(f"  {line}" for line in more)]


def _entry_text(lines: Sequence[str]) -> str:
    first = _BULLET.sub("", lines[0], count=1)
    return "\n".join(line.strip() for line in (first, *lines[1:])).strip()


def _join(lines: Sequence[str]) -> str:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return text + "\n" if text.strip() else ""


def _find_nearest(part: str, texts: Sequence[str]) -> str:
    """Return the text that shares most words with `part`, or an empty string."""
    words = set(part.split())
    best = max(texts, key=lambda text: len(words & set(fold(text).split())), default="")
    return best if words & set(fold(best).split()) else ""
