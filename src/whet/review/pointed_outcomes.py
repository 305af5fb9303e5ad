"""Verify the calls that a review points at because they went wrong although no error says so.

The model copies words of the call and of its proof; the program looks both up. A result proves only that
its own call failed, a typed message only what was done before it, and a later call only what it has in
common with the earlier one. Pasted text and output that speak of other calls therefore mark nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.contract.receipts import CallEffects
from whet.contract.texts import NOT_JSON, collect_texts, parse_arguments, plural, shared_decoder
from whet.contract.tools import tags_of
from whet.memory import typed, units
from whet.memory.alignment import find_aligned
from whet.memory.folding import find_span, fold
from whet.memory.sources import SourceText
from whet.memory.transcript import load_transcript
from whet.store import calls, sessions
from whet.store.calls import StoredCall

_MAX_POINTERS = 20
_MAX_TURNS_LATER = 3
_LINE = re.compile(r'(?m)^[^{\n]{0,4}(\{[^\n]{0,500}"outcome"[^\n]{0,500}\})[^}\n]{0,2}$')
_NAME = re.compile(r"(?<![\w-])[^\W_][\w.@-]*")
_NO_OUTPUT = frozenset(("", "(no output)"))
# Lines in brackets that a tool adds below a command's output.
_NOTES = re.compile(r"(?:(?:^|\n)\[[^\n]*\])+\s*\Z")


class Pointer(msgspec.Struct, frozen=True):
    """One line of a review's answer: words of a call, how it went, and words that prove it."""

    call: str
    outcome: Literal["failed", "undone", "objected"]
    quote: str = ""


class Verified(msgspec.Struct, frozen=True):
    """The outcomes by the numbers of the calls' results, and the pointers without proof."""

    outcomes: dict[int, str]
    unproven: tuple[Pointer, ...] = ()


class PointedOutcomes(msgspec.Struct, frozen=True):
    """The proven outcomes by session key and number, the ids of the calls that were read, and how many
    pointers no session proves."""

    by_session: dict[int, dict[int, str]] = {}
    read_ids: frozenset[str] = frozenset()
    dropped: int = 0

    @property
    def note(self) -> str:
        """What a person reads about it, empty if nothing was pointed at."""
        count = sum(map(len, self.by_session.values()))
        parts = [f"{plural(count, 'call')} marked"] if count else []
        parts += [f"{plural(self.dropped, 'mark')} without proof dropped"] if self.dropped else []
        return ", ".join(parts)

    def store(self, connection: apsw.Connection) -> None:
        """Store the outcomes, and which calls were not pointed at, inside the caller's transaction."""
        for key, outcomes in self.by_session.items():
            calls.store_pointed(connection, key, outcomes, self.read_ids)


_decoder = shared_decoder(Pointer)


def read_pointers(texts: Iterable[str]) -> list[Pointer]:
    """Return the pointers in a review's answers, without repetitions, twenty at most."""
    pointers: dict[Pointer, None] = {}
    for text in texts:
        for match in _LINE.finditer(text):
            try:
                pointers[_decoder.decode(match[1])] = None
            except NOT_JSON:
                continue
    return list(pointers)[:_MAX_POINTERS]


def verify_answers(
    connection: apsw.Connection,
    answers: Collection[str],
    reviewed: Mapping[str, int],
    read_ids: frozenset[str],
    trusted: Collection[str],
) -> PointedOutcomes:
    """Verify what a review's answers point at, in the reviewed sessions: by id, the last turn that it saw.
    A session that was deleted meanwhile, or made private, proves nothing."""
    pointers = read_pointers(answers)
    by_session: dict[int, dict[int, str]] = {}
    for session_id, last_turn in reviewed.items() if answers else ():
        with suppress(NotFound):
            session = sessions.get(connection, session_id)
            if session.private:
                continue
            key = sessions.key_of(connection, session_id)
            by_session[key] = {}
            if not pointers:
                continue
            items = calls.stream_calls(connection, key)
            seen = [item for item in items if isinstance(item, StoredCall) and item.turn <= last_turn]
            sources = load_transcript(connection, session_id, trusted).sources
            verified = verify_pointers(pointers, seen, sources)
            by_session[key], pointers = verified.outcomes, list(verified.unproven)
    return PointedOutcomes(by_session, read_ids, len(pointers))


def verify_pointers(
    pointers: Sequence[Pointer], seen: Sequence[StoredCall], sources: Sequence[SourceText]
) -> Verified:
    """Return what the session proves of the pointers. `sources` are its texts with their speakers."""
    messages = [source for source in sources if source.tier == source.role == "user"]
    outcomes: dict[int, str] = {}
    unproven: list[Pointer] = []
    for pointer in pointers:
        named = [call for call in seen if call.seq not in outcomes and _names(pointer.call, call)]
        call = next(_find_proven(pointer, named, seen, messages), None)
        if call is None:
            unproven.append(pointer)
        else:
            outcomes[call.seq] = pointer.outcome
    return Verified(outcomes, tuple(unproven))


def _find_proven(
    pointer: Pointer, named: Sequence[StoredCall], seen: Sequence[StoredCall], messages: Sequence[SourceText]
) -> Iterator[StoredCall]:
    """Yield the named calls that the quote proves something of: of failures the first, else the last."""
    if pointer.outcome == "failed":
        yield from (call for call in named if _has_failed(call, pointer.quote))
        return
    yield from (call for call in reversed(named) if _is_rejected(call, pointer.quote, messages))
    if pointer.outcome == "undone":
        yield from (
            call
            for call in reversed(named)
            if any(_takes_back(later, call) and _names(pointer.quote, later) for later in seen)
        )


def _names(words: str, call: StoredCall) -> bool:
    """Return whether words are copied from a call's arguments."""
    texts = "\n".join(collect_texts(parse_arguments(call.arguments)))
    return _holds(texts, words) or _holds(call.arguments, words)


def _has_failed(call: StoredCall, quote: str) -> bool:
    """Return whether a call that ended without an error has a result with these words, or if there are none,
    neither a result nor an effect that is recorded."""
    if call.error_kind or call.result is None:
        return False
    if quote.strip() and fold(quote) not in _NO_OUTPUT:
        return _holds(call.result, quote)
    is_idle = call.effects is not None and not (call.effects.edits or call.effects.touched)
    return is_idle or _NOTES.sub("", call.result).strip() in _NO_OUTPUT


def _is_rejected(call: StoredCall, quote: str, messages: Sequence[SourceText]) -> bool:
    """Return whether the person typed the words soon after the call, and quoted nobody."""
    for message in messages:
        if message.seq < call.seq or message.turn - call.turn > _MAX_TURNS_LATER:
            continue
        for start, end in _find(message.text, quote):
            sentence = units.find_sentence(message.text, start, end).text
            if not typed.is_quotation(message.text, start, end, sentence):
                return True
    return False


def _takes_back(later: StoredCall, call: StoredCall) -> bool:
    """Return whether a later call that may change something has a file or a name in common with a call."""
    if later.step <= call.step or later.error_kind or "looks" in tags_of(later.name):
        return False
    return not _subjects(call).isdisjoint(_subjects(later))


def _subjects(call: StoredCall) -> set[str]:
    """Return the words of a call's arguments, and the files that it changed."""
    arguments = parse_arguments(call.arguments)
    words = set(_NAME.findall("\n".join(collect_texts(arguments)).lower()))
    effects = call.effects or CallEffects()
    return words | {file.path for file in (*effects.edits, *effects.touched)}


def _holds(text: str, quote: str) -> bool:
    return bool(_find(text, quote))


def _find(text: str, quote: str) -> list[tuple[int, int]]:
    """Return the spans of a text that have a quote's words, whole ones, also with slips in a long quote."""
    folded = fold(quote).strip()
    if not folded:
        return []
    span = find_span(text, folded) if folded in fold(text) else None
    if span is not None and re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", fold(text)):
        return [span]
    return find_aligned(text, quote)
