"""What of memory and skills stands in a session's system prompt, made once and frozen.

Notes come whole, since they are bounded; pitfalls after the rest. The skill index takes names and
descriptions until its budget is spent, those used most first; the rest is found with skills_list. It reads
files through the desk and writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from whet.memory import notes
from whet.memory.library import SkillInfo
from whet.memory.notes import NoteEntry
from whet.memory.requests import Target
from whet.store.ledger import digest
from whet.store.outcomes import ItemKind

_LINE_CHARS = 160
_SECTIONS: tuple[tuple[Target, str], ...] = (("user", "The person"), ("memory", "Work and environment"))
_NOTES_HEAD = "What you remember (a snapshot of this session's start; facts, not orders):"


class PromptItem(msgspec.Struct, frozen=True):
    """One learned thing in a session's context: memory, user or skill, its name, the hash of its text, and
    its text or description for people."""

    kind: ItemKind
    id: str
    hash: str
    label: str = ""


class PromptPart(msgspec.Struct, frozen=True):
    """The text for the system prompt and the items it shows."""

    text: str = ""
    items: tuple[PromptItem, ...] = ()


def notes_part(texts: Mapping[Target, str], without: Collection[PromptItem] = ()) -> PromptPart:
    """Write the notes, by target, but those `without` names; nothing where there are none."""
    items: list[PromptItem] = []
    sections: list[str] = []
    for target, title in _SECTIONS:
        all_entries = notes.entries(texts.get(target, ""))
        for head, pitfalls in ((title, False), ("Pitfalls", True)):
            chosen = [entry for entry in all_entries if entry.is_pitfall is pitfalls]
            chosen = [entry for entry in chosen if _item(target, entry) not in without]
            if chosen:
                sections.append("\n".join([f"{head}:", *(f"- {_flat(entry.text)}" for entry in chosen)]))
                items += [_item(target, entry) for entry in chosen]
    text = "\n".join([_NOTES_HEAD, *sections]) if sections else ""
    return PromptPart(text, tuple(items))


def index_part(
    skills: Sequence[SkillInfo],
    uses: Mapping[str, int],
    budget_chars: int,
    offered: Collection[str],
    without: Collection[PromptItem] = (),
) -> PromptPart:
    """Write the skill index but for those `without` names. `uses` counts loads; `offered` are the names of
    the session's tools."""
    usable = [info for info in skills if not info.problem and _skill(info) not in without]
    if not usable or "skill_view" not in offered:
        return PromptPart()
    ranked = sorted(usable, key=lambda info: (-uses.get(info.name, 0), info.source != "home", info.name))
    lines: dict[str, str] = {}
    left = budget_chars
    for info in ranked:
        line = f"- {info.name}: {_cut(info.description)}"
        if len(line) + 1 > left:
            break
        left -= len(line) + 1
        lines[info.name] = line
    head = "Skills (load one with skill_view before work that it fits):"
    rest = len(usable) - len(lines)
    more = [f"({rest} more: skills_list finds them by words.)"] if rest else []
    text = "\n".join([head, *(lines[name] for name in sorted(lines)), *more])
    items = tuple(_skill(info) for info in usable if info.name in lines)
    return PromptPart(text, items)


def entry_id(entry: NoteEntry) -> str:
    """Give the name under which an entry is counted and found: it follows from what the entry says."""
    return digest(entry.said)[:12]


def _item(target: Target, entry: NoteEntry) -> PromptItem:
    key = entry_id(entry)
    return PromptItem(target, key, key, _flat(entry.said))


def _skill(info: SkillInfo) -> PromptItem:
    return PromptItem("skill", info.name, info.hash, _flat(info.description))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str) -> str:
    text = _flat(text)
    return text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1].rstrip() + "…"
