"""Read message ids from the index, newest first, within a search's bounds and with bounded work.

A posting is a message's entry in a term's list. A very common term has a million of them, and SQLite compares
two such lists a million times before it finds that they have no message in common. So a list is read only as
far as it matters. Comparisons also match the beats of the index (`index.py`): at each beat SQLite returns a
row, and the reader checks whether its time is spent.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from functools import cached_property

import apsw
import msgspec

from whet.store import rows
from whet.store.index import BEAT
from whet.store.query import Term

_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc"])
_LEAF = re.compile(r'"[^"]*"(?: \*)?')
_NARROW, _RARE, _PAIRS, _SMALL = 2_000, 300, 1_500, 30_000
_CPU_S = 0.003
_PREFIX_WORDS_MAX = 64
_ENDINGS = ("", "e", "s", "es", "ed", "ing", "ion", "al", "ic", "y", "ly", "er", "ate", "ation")
_now_s = time.thread_time
# Each word is looked up from the one before: a plain listing would read all postings of each.
_BEGINS = (
    "WITH RECURSIVE found (word) AS ("
    " SELECT (SELECT term FROM messages_words WHERE term >= ?1 LIMIT 1) UNION ALL"
    " SELECT (SELECT term FROM messages_words WHERE term >= word || char(0) LIMIT 1)"
    " FROM found WHERE word < ?2"
    ") SELECT word FROM found WHERE word < ?2 LIMIT ?3"
)


class Postings(msgspec.Struct):
    """The messages with one term.

    `ids` come newest first and are all of them if `is_whole`. `count` is their number, estimated otherwise.
    """

    term: Term
    match: str
    ids: list[int]
    is_whole: bool
    count: float
    weight: float = 0.0
    places: set[int] = msgspec.field(default_factory=set[int])


class PostingReader:
    """Reads postings between two message ids. Only messages that match every expression in `marks` count."""

    def __init__(self, connection: apsw.Connection, first: int, last: int, marks: Sequence[str]) -> None:
        self._connection = connection
        self.marks: list[str] = list(marks)
        self._scope = " AND ".join(marks)
        self.first: int
        self.last: int
        self.messages: int
        self.first, self.last, self.messages = self._extent(first, last)
        if self.first >> rows.SEQ_BITS == self.last >> rows.SEQ_BITS:
            self.messages = min(self.messages, self.last - self.first + 1)
        self.spent_s: float = 0.0

    @cached_property
    def _is_narrow(self) -> bool:
        """Whether few messages match the marks."""
        return bool(self._scope) and len(self._ids(self._scope, self.first, self.last, _NARROW)) < _NARROW

    def newest(self, match: str, limit: int, last: int | None = None) -> list[int]:
        """Return the newest ids, without a time limit."""
        expression = " AND ".join((*self.marks, match))
        return self._ids(expression, self.first, self.last if last is None else last, limit)

    def newest_in_time(self, match: str, limit: int) -> list[int]:
        """Return the newest ids that are found within the time limit. If few messages match the marks, there
        is no time limit."""
        if self._is_narrow:
            return self.newest(match, limit)
        expression = _LEAF.sub(rf'(\g<0> OR "{BEAT}")', " AND ".join((*self.marks, match)))
        began = _now_s()
        ids: list[int] = []
        for (number,) in self._numbers(expression, self.first, self.last, -1):
            if not number & 1:
                ids.append(-number >> 1)
                if len(ids) == limit:
                    break
            elif self.spent_s + _now_s() - began > _CPU_S:
                break
        self.spent_s += _now_s() - began
        return ids

    def read_term(self, term: Term, limit: int) -> Postings:
        """Return a term's postings, up to `limit` of them."""
        match = self._expand_prefix(term) if term.prefix else term.match
        ids = self._intersect_pairs(term, limit) if term.fallback else self._read(term, match, limit)
        return self._with_fallback(term, match, ids, limit)

    def read_terms(self, terms: Sequence[Term], limit: int) -> list[Postings]:
        """Return the postings of several terms, up to `limit` of each."""
        return [self.read_term(term, limit) for term in terms]

    def read_more(self, postings: Postings, limit: int) -> Postings:
        """Return the same term's postings with another limit."""
        if postings.match != postings.term.match or postings.term.fallback:
            return postings
        ids = self._read(postings.term, postings.match, limit)
        return self._build_postings(postings.term, postings.match, ids, limit)

    def _intersect_pairs(self, term: Term, limit: int) -> list[int]:
        """Return the messages that have all pairs of an identifier.

        Each pair's list is read alone, because FTS5 would compare them to their ends. Usually one is short.
        """
        lists = [set(self.newest(pair, _PAIRS)) for pair in term.text.split()]
        return sorted(set[int].intersection(*lists), reverse=True)[:limit]

    def _read(self, term: Term, match: str, limit: int) -> list[int]:
        """Read the ids of a term.

        The list of a single word is only read. A phrase, or a word with marks, needs comparisons and so has a
        time limit, unless the word is rare.
        """
        if term.is_phrase:
            return self.newest_in_time(match, limit)
        if not self.marks or self._is_narrow or len(self._ids(match, self.first, self.last, _RARE)) < _RARE:
            return self.newest(match, limit)
        return self.newest_in_time(match, limit)

    def _with_fallback(self, term: Term, match: str, ids: list[int], limit: int) -> Postings:
        """Return the postings with these ids or, if an identifier was not found, those of its words."""
        if not ids and term.fallback and (self.messages < _SMALL or self._is_narrow):
            match = term.fallback
            ids = self.newest(match, limit)
        return self._build_postings(term, match, ids, limit)

    def _build_postings(self, term: Term, match: str, ids: list[int], limit: int) -> Postings:
        is_whole = len(ids) < limit
        count = float(len(ids))
        if not is_whole:
            covered = (self.last - ids[-1] + 1) / (self.last - self.first + 1)
            count = min(float(self.messages), max(count, count / covered))
        return Postings(term, match, ids, is_whole, count, self._weight(count), set(ids))

    def _weight(self, count: float) -> float:
        return math.log(1 + (max(self.messages, count) - count + 0.5) / (count + 0.5))

    def _ids(self, expression: str, first: int, last: int, limit: int) -> list[int]:
        return [-number >> 1 for (number,) in self._numbers(expression, first, last, limit)]

    def _numbers(self, expression: str, first: int, last: int, limit: int) -> Iterator[tuple[int]]:
        """Return the index's numbers, of which the newest message has the smallest (see `index.py`)."""
        return self._connection.execute(
            "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? AND rowid BETWEEN ? AND ?"
            " ORDER BY rowid LIMIT ?",
            (expression, -2 * last, -2 * first, limit),
        )

    def _expand_prefix(self, term: Term) -> str:
        """Return an expression for the first 64 words of the index with this beginning.

        The index holds stems, so each stem is queried by some word that has it.
        """
        stem = tokenize(self._connection, term.text)
        beginnings = dict.fromkeys(f"{term.prefix}{ending}" for ending in ("", "e", "ing", "ion"))
        forms = [*beginnings, *(stem[:1])]
        end = f"{term.prefix}\U0010ffff"
        for (token,) in self._connection.execute(_BEGINS, (term.prefix, end, _PREFIX_WORDS_MAX)):
            for ending in _ENDINGS:
                if self._stem(token + ending) == token:
                    forms.append(token + ending)
                    break
        return f"({' OR '.join(_quote(form) for form in dict.fromkeys(forms))})"

    def _extent(self, first: int, last: int) -> tuple[int, int, int]:
        """Return the first and last id of the messages between two ids, and the number of indexed
        messages."""
        row = self._connection.execute(
            "SELECT (SELECT min(id) FROM messages WHERE id BETWEEN ?1 AND ?2),"
            " (SELECT max(id) FROM messages WHERE id BETWEEN ?1 AND ?2)",
            (first, last),
        ).fetchone()
        assert row is not None  # a query of sub-queries always returns a row
        return row[0] or 0, row[1] or 0, self._count_indexed_messages()

    def _count_indexed_messages(self) -> int:
        """Return the number of indexed messages: the first number of the index's record of averages.

        Source: FTS5's file format.
        """
        row = self._connection.execute("SELECT block FROM messages_fts_data WHERE id = 1").fetchone()
        number = 0
        for byte in row[0] if row else b"":
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                break
        return max(number, 1)

    def _stem(self, word: str) -> str:
        tokens = tokenize(self._connection, word)
        return tokens[0] if tokens else ""


def tokenize(connection: apsw.Connection, text: str) -> list[str]:
    """Return the index's tokens of a text in the form of `query.to_index_text`."""
    tokenizer = connection.fts5_tokenizer(*_TOKENIZER)
    return tokenizer(
        text.encode("utf-8", "replace"),
        apsw.FTS5_TOKENIZE_DOCUMENT,
        None,
        include_offsets=False,
        include_colocated=False,
    )


def _quote(word: str) -> str:
    return '"' + word.replace('"', "") + '"'
