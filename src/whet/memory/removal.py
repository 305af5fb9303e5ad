"""Decide whether a change may take old words out of the notes or a skill without the person.

A removal needs the same evidence as an addition: newer words about the same subject, from the person or from
this machine. In doubt the change waits for the person, so that nothing is lost unseen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import product

from whet.memory import subjects, units
from whet.memory.folding import content_words, fold, has_part
from whet.memory.replies import is_rejection
from whet.store.ledger import LedgerRow, NewRow, Quote

_MIN_SAME = 0.5
_MARKS = "“”\"'` .-*"
_QUOTE = re.compile(r"“([^“”]*)”")
_SAID = re.compile(r"“[^“”]*”(?:(?: … | \(said [\d-]{10}\)|; )+“[^“”]*”)*(?: \(said [\d-]{10}\))?")
_GROUP_END = re.compile(r"(?<=[)”]); (?=“)")
_STEP = re.compile(r"^\s*(?:\d+[.)]|[-*+])\s+")


def is_about(old: str, texts: Sequence[str]) -> bool:
    """Return whether any of the texts shares a word that carries content with the old one."""
    words = set(content_words(subjects.strip_day(old)))
    return any(words & set(content_words(text)) for text in texts)


def is_newer(rows: Sequence[LedgerRow], old: str, evidence: Sequence[Quote]) -> bool:
    """Return whether the evidence is newer than that of the old entry, as far as the ledger knows."""
    for row in rows:
        if row.after == old and row.state in ("active", "staged"):
            last = {
                quote.session_id: quote.seq for quote in sorted(row.evidence, key=lambda quote: quote.seq)
            }
            return not evidence or any(quote.seq > last.get(quote.session_id, -1) for quote in evidence)
    return True


def find_doubt_about(row: LedgerRow | NewRow, entries: Sequence[str]) -> str:
    """Return why the person should decide on a change that takes words away, or an empty string.

    `entries` are the notes in force. A note that another one contains may always be removed.
    """
    quotes = [quote.quote for quote in row.evidence]
    if row.kind == "skill":
        removed, added = _list_lines(row.before, row.after), _list_lines(row.after, row.before)
        texts = [*quotes, *added]
        is_proven = all(is_about(line, texts) for line in removed)
        return "" if is_proven else "it takes away lines, and nothing newer speaks against them"
    # A replacement is entered only if the new text takes the old one's place.
    if row.after or not row.before or is_repeated(row.before, entries):
        return ""
    is_proven = any(
        _takes_back(row.before, text) and not _is_about_another(row.before, text) for text in quotes
    )
    return "" if is_proven else "it removes a note, and nothing newer clearly takes it back"


def find_rest(old: str, new: str, named: str = "") -> str | None:
    """Return what stays of an older note if a newer statement takes its place, or None if it does not.

    Of a note's statements, those that the newer one is about are removed; if the change names some of them
    (`named`), only these. Other statements that it names, such as a condition, are removed too, unless
    they are about another thing. The rest stays.
    """
    groups = _split_groups(old)
    statements = [text for group in groups for text in _list_statements(group)]
    if len(statements) < 2:
        return "" if _takes_place(old, new) else None
    taken = {text for text in statements if _takes_place(text, new) or has_part(fold(new), _strip(text))}
    others = {text for text in statements if _is_about_another(text, new)} - taken
    if not taken:
        return "" if not others and _takes_place(old, new) else None
    pointed = {text for text in statements if _strip(text) in fold(named)}
    removed = (taken & pointed or taken) | (pointed - others)
    return "; ".join(filter(None, (_drop_statements(group, removed) for group in groups)))


def may_belong(old: str, new: str) -> bool:
    """Return whether a newer text may be shown in the same note as an older one.

    Both are the person's words and share one, neither is about another thing, and together they are no longer
    than a statement may be.
    """
    is_said = all(map(_SAID.fullmatch, (old, new))) and len(old) + len(new) <= units.MAX_CHARS
    return is_said and is_about(old, [new]) and not _is_about_another(old, new)


def _takes_place(old: str, new: str) -> bool:
    """Return whether a newer text, or one of its statements, replaces an older statement."""
    texts = _list_statements(new)
    if not _is_about_another(old, new):
        texts.append(new)
    return any(_replaces(old, text) for text in texts)


def _replaces(old: str, new: str) -> bool:
    """Return whether a newer statement is the older one with other words in a place: both begin alike, or
    every word that is missing has a replacement."""
    if subjects.is_update(old, new):
        return True
    overlap = subjects.compare_wording(old, new)
    is_other_thing = subjects.is_parallel(old, new) or overlap.moves_inside
    is_same_thing = _is_close(old, new, overlap) and not is_other_thing
    return is_same_thing and (overlap.is_filled or overlap.begins_alike)


def _is_about_another(old: str, new: str) -> bool:
    """Return whether a statement of a newer text is about another thing than one of an older text."""
    pairs = product(_list_statements(old), _list_statements(new))
    return any(subjects.is_parallel(*pair) or subjects.names_another(*pair) for pair in pairs)


def _list_statements(text: str) -> list[str]:
    """Return the sentences of a text, or of the quotes in a note."""
    quotes = _QUOTE.findall(text) or [subjects.strip_day(text)]
    return [sentence for quote in quotes for sentence in units.split_sentences(quote)]


def _split_groups(entry: str) -> list[str]:
    """Return the parts of a note, one for each message. Empty unless the note has only the person's words."""
    return _GROUP_END.split(entry) if _SAID.fullmatch(entry) else []


def _drop_statements(group: str, removed: Collection[str]) -> str:
    """Return a part of a note without some of its statements, or an empty string if none stays."""
    kept = ([t for t in units.split_sentences(quote) if t not in removed] for quote in _QUOTE.findall(group))
    rest = " … ".join(f"“{' '.join(texts)}”" for texts in kept if texts)
    return rest and rest + group[group.rindex("”") + 1 :]


def _is_close(old: str, new: str, overlap: subjects.Overlap) -> bool:
    is_close = overlap.same_share >= _MIN_SAME or _is_same_subject(old, new)
    return is_close and not subjects.names_another(old, new)


def _takes_back(old: str, text: str) -> bool:
    """Return whether newer words reject a note, or replace some of its words."""
    if is_rejection(text):
        return _is_same_subject(old, text)
    overlap = subjects.compare_wording(old, text)
    is_reworded = overlap.begins_alike and overlap.is_filled and 0 < overlap.same_share < 1
    return is_reworded and not overlap.moves_inside and _is_close(old, text, overlap)


def _is_same_subject(old: str, new: str) -> bool:
    """Return whether newer words are clearly about the old ones: they share most words."""
    if subjects.names_another(old, new):
        return False
    mine = set(content_words(subjects.strip_day(old)))
    shared = mine & set(content_words(subjects.strip_day(new)))
    return len(shared) >= min(2, len(mine)) and 2 * len(shared) >= len(mine) > 0


def is_repeated(old: str, entries: Sequence[str]) -> bool:
    """Return whether another entry contains what the old one says."""
    part = _strip(old)
    return any(entry != old and has_part(fold(entry), part) for entry in entries)


def _strip(text: str) -> str:
    return fold(subjects.strip_day(text)).strip(_MARKS)


def _list_lines(text: str, other: str) -> list[str]:
    """Return the lines of a text that the other one lacks, whatever their numbers."""
    theirs = {_STEP.sub("", line).strip() for line in other.splitlines()}
    lines = (_STEP.sub("", line).strip() for line in text.splitlines())
    return [line for line in lines if line and line not in theirs and content_words(line)]
