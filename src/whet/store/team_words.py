"""Store a team's search index in a column of PostgreSQL, with the same words as in the home's file.

SQLite's tokeniser makes the words and their stems, so that a query finds the same in both. Expressions are
written for SQLite and translated here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TypeVar

import apsw

from whet.store.postings import tokenize

T = TypeVar("T")
_PIECE = re.compile(r'"[^"]*"(?: \*)?|\bAND\b|\bOR\b|[()]')
_PLACES_MAX = 16_383
_PLACES_OF_ONE = 255
_WORD_BYTES_MAX = 1_000
_BYTES_MAX = 600_000
_NEVER = "'\ue00f'"
_STORE = "SELECT whet_store_words(?, ?)"
_lock = threading.Lock()


@cache
def _tokenizer() -> apsw.Connection:
    return apsw.Connection(":memory:")


def index_words(text: str) -> list[str]:
    """Return the index's words of a text in the form of `query.to_index_text`."""
    with _lock:
        return tokenize(_tokenizer(), text)


def store_message_words(connection: apsw.Connection, texts: Mapping[int, str]) -> None:
    """Store the words of messages in the index, replacing earlier ones."""
    vectors = [format_vector(index_words(text)) for text in texts.values()]
    connection.execute(_STORE, ([*texts], vectors))  # pyright: ignore[reportArgumentType] a team's database takes lists


def take_out(connection: apsw.Connection, first: int, last: int) -> None:
    """Remove the messages from `first` to before `last` from the index."""
    connection.execute("DELETE FROM message_words WHERE id >= ? AND id < ?", (first, last))


def format_vector(tokens: Iterable[str]) -> str:
    """Return a tsvector's text: each word with its positions, within PostgreSQL's limits."""
    positions: dict[str, list[int]] = {}
    size = 0
    for position, token in enumerate(tokens, 1):
        if token not in positions:
            length = len(token.encode()) + 8
            if length > _WORD_BYTES_MAX:
                continue
            size += length
            if size > _BYTES_MAX:
                break
            positions[token] = []
        if len(positions[token]) < _PLACES_OF_ONE:
            positions[token].append(min(position, _PLACES_MAX))
            size += 4
    return " ".join(f"{quote_word(token)}:{','.join(map(str, at))}" for token, at in positions.items())


def quote_word(token: str) -> str:
    """Quote a word for a query of PostgreSQL."""
    doubled = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def evaluate(
    expression: str, value_of: Callable[[str], T], both: Callable[[T, T], T], either: Callable[[T, T], T]
) -> T:
    """Evaluate an expression of the index.

    `value_of` returns the value of a phrase or prefix. `both` combines values joined by AND, `either` by OR.
    """
    pending = [*_PIECE.finditer(expression)][::-1]

    def any_of() -> T:
        value = all_of()
        while next_is("OR"):
            value = either(value, all_of())
        return value

    def all_of() -> T:
        value = operand()
        while next_is("AND"):
            value = both(value, operand())
        return value

    def operand() -> T:
        token = pending.pop().group()
        if token != "(":
            return value_of(token)
        value = any_of()
        next_is(")")
        return value

    def next_is(word: str) -> bool:
        if not pending or pending[-1].group() != word:
            return False
        pending.pop()
        return True

    return any_of()


def to_tsquery(expression: str) -> str:
    """Translate an expression of the index for PostgreSQL."""
    return evaluate(expression, _term, lambda a, b: f"({a} & {b})", lambda a, b: f"({a} | {b})")


def parse_leaf(leaf: str) -> tuple[list[str], bool]:
    """Return the words of a phrase, and whether the last one is a prefix."""
    return index_words(leaf), leaf.endswith("*")


def _term(leaf: str) -> str:
    tokens, is_prefix = parse_leaf(leaf)
    words = [quote_word(token) for token in tokens]
    if words and is_prefix:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})" if words else _NEVER
