"""The search index of a team's database: the same words as in the home's file, in a column of PostgreSQL's.

The words and their stems come from SQLite's tokeniser, so that a query finds the same on both. What looks for
several words is written as for SQLite and put into PostgreSQL's terms here.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import apsw

from whet.store.postings import PostingReader, Postings, tokens_of
from whet.store.query import Term

if TYPE_CHECKING:
    from whet.postgres.connection import PostgresConnection

_PIECE = re.compile(r'"([^"]*)"( \*)?|(\bAND\b)|(\bOR\b)|([()])')
_PLACES_MAX = 16_383
_PLACES_OF_ONE = 255
_WORD_BYTES_MAX = 1_000
_BYTES_MAX = 600_000
_NEVER = "'\ue00f'"
_COUNTED_MAX = 20_000
_NEWEST_READ = 5_000
_WHOLE_MAX = 10_000
_UNKNOWN = 2_000
_AGAIN_S = 600.0
# By the index of words, every message that has them; or by number, the newest messages one by one. The server
# can't choose well: of a word that is not among its thousand most common it knows nothing.
_WHOLE = (
    "FROM (SELECT id FROM message_words WHERE id BETWEEN ? AND ? AND words @@ CAST(? AS tsquery) OFFSET 0) x"
    " ORDER BY id DESC LIMIT ?"
)
_BOUNDED = (
    "FROM (SELECT id, words FROM message_words WHERE id BETWEEN ? AND ? ORDER BY id DESC"
    f" LIMIT {_NEWEST_READ}) x WHERE words @@ CAST(? AS tsquery) ORDER BY id DESC LIMIT ?"
)
_SHARES = (
    "SELECT e, f FROM pg_stats, unnest(CAST(CAST(most_common_elems AS text) AS text[]),"
    " most_common_elem_freqs) u(e, f)"
    " WHERE schemaname = current_schema() AND tablename = 'message_words' AND attname = 'words'"
    " AND e IS NOT NULL"
)
_shares: dict[str, tuple[float, dict[str, float]]] = {}
_lock = threading.Lock()


@cache
def _tokenizer() -> apsw.Connection:
    return apsw.Connection(":memory:")


def words_of(text: str) -> list[str]:
    """Give the index's words of a text that is in the index's form."""
    with _lock:
        return tokens_of(_tokenizer(), text)


def put(connection: apsw.Connection, id_: int, body: str) -> None:
    """Put a message's words in the index, instead of those that it had."""
    connection.execute(
        "INSERT INTO message_words (id, words) VALUES (?, CAST(? AS tsvector))"
        " ON CONFLICT (id) DO UPDATE SET words = excluded.words",
        (id_, _vector(words_of(body))),
    )


def take_out(connection: apsw.Connection, first: int, last: int) -> None:
    """Take the messages with these ids out of the index; `last` stays."""
    connection.execute("DELETE FROM message_words WHERE id >= ? AND id < ?", (first, last))


def _vector(tokens: Iterable[str]) -> str:
    places: dict[str, list[int]] = {}
    size = 0
    for place, token in enumerate(tokens, 1):
        if token not in places:
            length = len(token.encode()) + 8
            if length > _WORD_BYTES_MAX:
                continue
            size += length
            if size > _BYTES_MAX:
                break
            places[token] = []
        if len(places[token]) < _PLACES_OF_ONE:
            places[token].append(min(place, _PLACES_MAX))
            size += 4
    return " ".join(f"{_quoted(token)}:{','.join(map(str, at))}" for token, at in places.items())


def _quoted(token: str) -> str:
    doubled = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def as_tsquery(expression: str) -> str:
    """Give an expression of the index's for PostgreSQL."""
    return " ".join(_term(found) for found in _PIECE.finditer(expression))


def _term(found: re.Match[str]) -> str:
    phrase, is_prefix, both, either, bracket = found.groups()
    if phrase is None:
        return "&" if both else "|" if either else bracket
    tokens = [_quoted(token) for token in words_of(phrase)]
    if tokens and is_prefix:
        tokens[-1] += ":*"
    return f"({' <-> '.join(tokens)})" if tokens else _NEVER


class _Shares:
    """Works out in what share of the messages an expression stands, as if its words knew nothing of each
    other; `least` is the share of a word of which nothing is known."""

    def __init__(self, expression: str, shares: Mapping[str, float], least: float) -> None:
        self._left = [*_PIECE.finditer(expression)][::-1]
        self._shares = shares
        self._least = least

    def either(self) -> float:
        """Read up to the closing bracket or the end."""
        share = self._both()
        while self._next_is("OR"):
            share += self._both()
        return min(share, 1.0)

    def _both(self) -> float:
        share = self._one()
        while self._next_is("AND"):
            share *= self._one()
        return share

    def _one(self) -> float:
        phrase, is_prefix, *_ = (found := self._left.pop()).groups()
        if found.group() == "(":
            share = self.either()
            self._next_is(")")
            return share
        share = 1.0
        for token in words_of(phrase or ""):
            share *= self._shares.get(token, self._least)
        if is_prefix:
            begins = words_of(phrase)[-1:]
            share = sum(f for word, f in self._shares.items() if begins and word.startswith(begins[0]))
        return max(share, self._least) if is_prefix else share

    def _next_is(self, word: str) -> bool:
        if not self._left or self._left[-1].group() != word:
            return False
        self._left.pop()
        return True


def _shares_of(connection: apsw.Connection) -> dict[str, float]:
    """Give in what share of all messages the most common words stand, as the server counted last; read again
    now and then."""
    raw = cast("PostgresConnection", connection).raw
    known = _shares.get(raw.info.dsn)
    if known is None or known[0] < time.monotonic():
        found = {word: share for word, share in connection.execute(_SHARES)}
        known = _shares[raw.info.dsn] = (time.monotonic() + _AGAIN_S, found)
    return known[1]


class TeamPostingReader(PostingReader):
    """Reads postings of a team's database; its own index meets several words without reading each whole."""

    def sliced(self, match: str, limit: int) -> list[int]:
        """Give the newest ids."""
        return self.newest(match, limit)

    def of_each(self, terms: Sequence[Term], limit: int) -> list[Postings]:
        """Give the postings of several terms, up to `limit` of each, in one statement."""
        matches = [self._prefixed(term) if term.prefix else term.match for term in terms]
        found = self._of_each([" AND ".join((*self.marks, match)) for match in matches], limit)
        return [
            self._found(term, match, ids, limit)
            for term, match, ids in zip(terms, matches, found, strict=True)
        ]

    def _of_each(self, expressions: Sequence[str], limit: int) -> list[list[int]]:
        parts: list[str] = []
        values: list[Any] = []
        for place, one in enumerate(expressions):
            parts.append(f"(SELECT CAST(? AS bigint), id {self._form(one)})")
            values += (place, self.first, self.last, as_tsquery(one), limit)
        ids: list[list[int]] = [[] for _ in expressions]
        for row in self._connection.execute(" UNION ALL ".join(parts), values):
            ids[int(row[0])].append(row[1])
        return ids

    def _form(self, expression: str) -> str:
        is_small = self.messages <= _NEWEST_READ
        return _WHOLE if is_small or self._about(expression) <= _WHOLE_MAX else _BOUNDED

    def _about(self, expression: str) -> float:
        """Give in how many messages this may stand, as far as the server knows its words."""
        shares = _shares_of(self._connection)
        least = min(_UNKNOWN / max(self.messages, 1), 1.0)
        return self.messages * _Shares(expression, shares, least).either()

    def _postings(self, term: Term, match: str, ids: list[int], limit: int) -> Postings:
        made = super()._postings(term, match, ids, limit)
        expression = " AND ".join((*self.marks, match))
        if made.is_whole and self._form(expression) is _BOUNDED:
            made.is_whole, made.count = False, max(float(len(ids)), self._about(expression))
            made.weight = self._weight(made.count)
        return made

    def _meeting(self, term: Term, limit: int) -> list[int]:
        return self.newest(term.match, limit)

    def _read(self, term: Term, match: str, limit: int) -> list[int]:
        return self.newest(match, limit)

    def _ids(self, expression: str, first: int, last: int, limit: int) -> list[int]:
        sql = f"SELECT id {self._form(expression)}"
        found = self._connection.execute(sql, (first, last, as_tsquery(expression), limit))
        return [row[0] for row in found]

    def _prefixed(self, term: Term) -> str:
        stems = dict.fromkeys((term.prefix, *words_of(term.text)[:1]))
        forms = [f'"{stem}" *' for stem in stems]
        return f"({' OR '.join(forms)})"

    def _extent(self, first: int, last: int) -> tuple[int, int, int]:
        row = self._connection.execute(
            "SELECT (SELECT min(id) FROM messages WHERE id BETWEEN ?1 AND ?2),"
            " (SELECT max(id) FROM messages WHERE id BETWEEN ?1 AND ?2),"
            " CASE WHEN reltuples > ?3 THEN CAST(reltuples AS bigint)"
            " ELSE (SELECT count(*) FROM message_words) END,"
            " set_config('plan_cache_mode', 'force_custom_plan', true)"
            " FROM pg_class WHERE oid = CAST('message_words' AS regclass)",
            (first, last, _COUNTED_MAX),
        ).fetchone()
        return (row[0] or 0, row[1] or 0, max(row[2], 1)) if row else (0, 0, 1)
