"""The search index of a team's database: the same words as in the home's file, in a column of PostgreSQL's.

The words and their stems come from SQLite's tokeniser, so that a query finds the same on both. What looks for
several words is written as for SQLite and put into PostgreSQL's terms here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from functools import cache

import apsw

from whet.store.postings import PostingReader, Postings, tokens_of
from whet.store.query import Term

_PIECE = re.compile(r'"([^"]*)"( \*)?|(\bAND\b)|(\bOR\b)|([()])')
_PLACES_MAX = 16_383
_PLACES_OF_ONE = 255
_WORD_BYTES_MAX = 1_000
_BYTES_MAX = 600_000
_NEVER = "'\ue00f'"
_COUNTED_MAX = 20_000
_FOUND = (
    "FROM message_words WHERE words @@ CAST(? AS tsquery) AND id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
)
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
        part = f"(SELECT CAST(? AS bigint), id {_FOUND})"
        values = [
            (place, as_tsquery(one), self.first, self.last, limit) for place, one in enumerate(expressions)
        ]
        ids: list[list[int]] = [[] for _ in expressions]
        for place, id_ in self._connection.execute(
            " UNION ALL ".join([part] * len(values)), [value for each in values for value in each]
        ):
            ids[place].append(id_)
        return ids

    def _meeting(self, term: Term, limit: int) -> list[int]:
        return self.newest(term.match, limit)

    def _read(self, term: Term, match: str, limit: int) -> list[int]:
        return self.newest(match, limit)

    def _ids(self, expression: str, first: int, last: int, limit: int) -> list[int]:
        found = self._connection.execute(f"SELECT id {_FOUND}", (as_tsquery(expression), first, last, limit))
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
