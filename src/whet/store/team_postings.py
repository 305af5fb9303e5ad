"""Read message ids from a team's index, newest first, with bounded work.

PostgreSQL's index reads a word's list to its end before it returns a message, and fetching a row costs more
than finding it. So only rare terms are looked up in the index, slice by slice of the store. Other terms are
searched in the newest rows, which are read once for all parts of a query. A term that turns out to be rare
there is looked up in the index below them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import apsw
import msgspec

from whet.store import rows
from whet.store.postings import PostingReader, Postings
from whet.store.query import Term
from whet.store.team_words import evaluate, index_words, parse_leaf, quote_word, to_tsquery

if TYPE_CHECKING:
    from whet.postgres.connection import PostgresConnection

_NEWEST_READ = 4_000
_MAX, _EVERYWHERE = 0.5, 0.05
_ENOUGH = 25
_RARE = 5_000
_SLICE_ROWS, _FETCHED_MAX, _LEAST = 600, 1_500, 50
_MISS_FACTOR = 3.0
_FIRST_READ = 400
_COMPARED_MAX = 30_000
_BEGINNINGS = 10
_COUNTED_MAX, _COUNTED_WORDS = 20_000, 1_000
_SMALL = 30_000
_UNKNOWN = 2_000
_AGAIN_S = 600.0
# Without OFFSET the server would rather scan all rows by number and hope to finish early.
_ROWS = (
    "(SELECT id, words FROM message_words"
    " WHERE id BETWEEN ? AND ? AND words @@ CAST(? AS tsquery) OFFSET 0) x"
)
_EXACT = f"(SELECT CAST(? AS bigint), id FROM {_ROWS} ORDER BY id DESC LIMIT ?)"
_FILTERED = f"(SELECT CAST(? AS bigint), CASE WHEN words @@ CAST(? AS tsquery) THEN id END FROM {_ROWS})"
_NEWEST = (
    "FROM (SELECT id, words FROM message_words WHERE id BETWEEN ? AND ? ORDER BY id DESC"
    f" LIMIT {_NEWEST_READ}) x"
)
_NEWEST_OF = (
    "FROM (SELECT w.id, w.words FROM"
    f" (SELECT key FROM sessions WHERE profile = ? AND key <= CAST(? AS bigint) >> {rows.SEQ_BITS}"
    " ORDER BY key DESC) s"
    " CROSS JOIN LATERAL (SELECT id, words FROM message_words"
    f" WHERE id BETWEEN s.key << {rows.SEQ_BITS} AND ((s.key + 1) << {rows.SEQ_BITS}) - 1"
    f" AND id BETWEEN ? AND ? ORDER BY id DESC LIMIT {_NEWEST_READ}) w LIMIT {_NEWEST_READ}) x"
)
_PLACES = "string_agg(CAST(id AS text), ',') FILTER (WHERE words @@ CAST(? AS tsquery))"
_SHARES = (
    "SELECT e, f FROM pg_stats, unnest(CAST(CAST(most_common_elems AS text) AS text[]),"
    " most_common_elem_freqs) u(e, f)"
    " WHERE (schemaname, tablename, attname) = (SELECT n.nspname, c.relname, 'words' FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = CAST('message_words' AS regclass))"
    " AND e IS NOT NULL"
)
_OPERATOR = re.compile(r"^|[&|]|<->")
_shares: dict[str, tuple[float, dict[str, float]]] = {}
_lock = threading.Lock()


def _read_shares(connection: apsw.Connection) -> dict[str, float]:
    """Return the share of messages that contain each of the most common words.

    It comes from the server's last statistics, which are read again now and then.
    """
    raw = cast("PostgresConnection", connection).raw
    with _lock:
        cached = _shares.get(raw.info.dsn)
    if cached is None or cached[0] < time.monotonic():
        shares = {word: share for word, share in connection.execute(_SHARES)}
        cached = (time.monotonic() + _AGAIN_S, shares)
        with _lock:
            _shares[raw.info.dsn] = cached
    return cached[1]


class IdWindow(msgspec.Struct):
    """The newest rows up to an id: their number, their lowest id, and the ids with each part of a query."""

    rows: int = 0
    low: int = 0
    places: dict[str, frozenset[int]] = msgspec.field(default_factory=dict[str, frozenset[int]])

    def find_positions(self, expression: str) -> frozenset[int]:
        """Return the ids of the rows that match an expression, from those of its parts."""
        return evaluate(expression, self.places.__getitem__, frozenset[int].__and__, frozenset[int].__or__)


class NewestIds(msgspec.Struct, frozen=True):
    """The newest ids of an expression, or all if `is_whole`. It occurs in about `count` messages."""

    ids: list[int]
    is_whole: bool
    count: float


class IdLookup(msgspec.Struct):
    """A lookup of an expression in the index from the id `top` downwards.

    The index is queried with `key`, which occurs in at most `work` messages. The expression occurs in about
    `most`. Unless `is_exact`, some rows with the key do not match it.
    """

    expression: str
    key: str
    is_exact: bool
    limit: int
    top: int
    work: float
    most: float
    ids: list[int] = msgspec.field(default_factory=list[int])
    low: int = 0
    count: float = 0.0
    whole: float = 0.0

    def __post_init__(self) -> None:
        self.whole, self.count = self.work, self.most

    @property
    def wants(self) -> int:
        """The number of ids that are still needed."""
        return self.limit - len(self.ids)

    @property
    def comparisons(self) -> float:
        """The number of comparisons that the index makes for a slice of any length."""
        return self.whole * len(_OPERATOR.findall(self.key))

    def aim(self, first: int, fetched: float) -> None:
        """Set the lower end of the next slice, so that it has the needed ids but at most `fetched` rows."""
        rows_there = max(self.most if self.is_exact else _MISS_FACTOR * self.work, 1.0)
        share = min(2.0 * self.wants / max(self.most, 1.0), fetched / rows_there)
        self.low = first if share >= 1.0 else self.top - int((self.top - first) * share)

    def take(self, ids: Sequence[int | None], first: int) -> float:
        """Add the rows fetched from `top` down to `low`, None for each without a match. Return the cost."""
        matching_ids = sorted((id_ for id_ in ids if id_ is not None), reverse=True)
        remaining_share = (self.low - first) / (self.top - self.low + 1)
        self.ids += matching_ids
        self.most = len(matching_ids) * remaining_share
        self.work = self.most if self.is_exact else len(ids) * remaining_share
        self.count = len(self.ids) + self.most
        self.top = self.low - 1
        return len(ids) * (1.0 if self.is_exact else _MISS_FACTOR)

    def result(self, first: int, limit: int) -> NewestIds:
        """Return up to `limit` of the ids that were found."""
        is_whole = len(self.ids) < limit and self.top < first
        return NewestIds(
            self.ids[:limit], is_whole, len(self.ids) if is_whole else max(self.count, len(self.ids))
        )


class TeamPostingReader(PostingReader):
    """Reads postings of a team's database. `profile` is the person whose messages the marks select.

    A mark that most messages have is not queried, because the ranking checks which rows may be shown.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        first: int,
        last: int,
        marks: Sequence[str],
        profile: str | None = None,
    ) -> None:
        super().__init__(connection, first, last, ())
        self._profile = profile
        self._known: dict[str, float] = {}
        self._shares = _read_shares(connection)
        self._least = min(self._shares.values(), default=1.0)
        # words may be missing because they are rare, not because the list is full
        if len(self._shares) < _COUNTED_WORDS:
            self._least = min(self._least, _UNKNOWN / self.messages)
        self._scope = " AND ".join(mark for mark in marks if self.read_share(mark) < _MAX)
        self._population = self.messages * (self._work(self._scope) if self._scope else 1.0)
        self._windows: dict[int, IdWindow] = {}
        self._compared, self._fetched = 0.0, 0.0
        self._sought: dict[tuple[str, int], IdLookup] = {}

    @cached_property
    def _is_narrow(self) -> bool:
        return self._population <= _RARE

    def newest(self, match: str, limit: int, last: int | None = None) -> list[int]:
        """Return the newest ids."""
        return self._read_each([match], limit, self.last if last is None else last)[0].ids

    def newest_in_time(self, match: str, limit: int) -> list[int]:
        """Return the newest ids."""
        return self.newest(match, limit)

    def read_terms(self, terms: Sequence[Term], limit: int) -> list[Postings]:
        """Return the postings of several terms, at least `limit` of each if they exist."""
        limit = max(limit, _FIRST_READ)
        matches = [self._expand_prefix(term) if term.prefix else term.match for term in terms]
        results = self._read_each(matches, limit, self.last)
        return [self._build_from_ids(*values, limit) for values in zip(terms, matches, results, strict=True)]

    def read_more(self, postings: Postings, limit: int) -> Postings:
        """Return the same postings, because reading is bounded already."""
        return postings

    def _build_from_ids(self, term: Term, match: str, newest_ids: NewestIds, limit: int) -> Postings:
        if not newest_ids.ids and term.fallback and (self.messages < _SMALL or self._is_narrow):
            match = term.fallback
            newest_ids = self._read_each([match], limit, self.last)[0]
        if newest_ids.is_whole:
            self._known[match] = newest_ids.count / self.messages
        weight = self._weight(newest_ids.count)
        return Postings(
            term, match, newest_ids.ids, newest_ids.is_whole, newest_ids.count, weight, set(newest_ids.ids)
        )

    def _read_each(self, matches: Sequence[str], limit: int, last: int) -> list[NewestIds]:
        """Return the newest ids of each expression up to `last`, with few statements."""
        expressions = [" AND ".join((*self.marks, match)) for match in matches]
        works = {expression: self._estimate_work(expression) for expression in expressions}
        common = [expression for expression, work in works.items() if work > _RARE]
        window = self._read_window(common, last) if common else IdWindow()
        results: dict[str, NewestIds] = {}
        lookups: list[IdLookup] = []
        for expression, work in works.items():
            if (earlier := self._sought.get((expression, last))) is not None:
                earlier.limit = max(earlier.limit, limit)
                lookups.append(earlier)
            elif work <= _RARE:
                lookups.append(self._create_lookup(expression, limit, last, work, work))
            else:
                ids = sorted(window.find_positions(expression), reverse=True)
                if window.rows < _NEWEST_READ:
                    results[expression] = NewestIds(ids[:limit], len(ids) < limit, len(ids))
                    continue
                most = (len(ids) + 1) / window.rows * self._population
                results[expression] = NewestIds(ids[:limit], False, max(len(ids), most))
                if len(ids) < min(limit, _ENOUGH):
                    share = evaluate(expression, lambda leaf: self._observed_share(leaf, window), min, _add)
                    work = min(work, self.messages * share)
                    new = self._create_lookup(expression, limit, window.low - 1, work, most, ids)
                    lookups += [new] if new.key else []
        self._run_lookups(lookups)
        self._sought |= {(expression.expression, last): expression for expression in lookups}
        results |= {expression.expression: expression.result(self.first, limit) for expression in lookups}
        return [results[expression] for expression in expressions]

    def _create_lookup(
        self, expression: str, limit: int, top: int, work: float, most: float, ids: Sequence[int] = ()
    ) -> IdLookup:
        scoped = self._add_scope(expression)
        key = evaluate(scoped, self._key, format_both, format_either)
        if not key and work <= _RARE:  # in a small store nothing costs the index too much
            key = to_tsquery(scoped)
        is_exact = key == to_tsquery(scoped) and "<->" not in key
        return IdLookup(expression, key, is_exact, limit, top, work, most, [*ids])

    def _run_lookups(self, sought: Sequence[IdLookup]) -> None:
        """Read the index until each lookup has enough ids, or the search's limit is reached."""
        pending = sorted(sought, key=lambda one: one.work)
        while pending := [one for one in pending if one.wants > 0 and one.top >= self.first]:
            affordable: list[IdLookup] = []
            for lookup in pending:
                is_free = lookup.work <= _RARE and not lookup.low
                if is_free or self._compared + lookup.comparisons <= _COMPARED_MAX:
                    self._compared += lookup.comparisons
                    affordable.append(lookup)
            if not affordable:
                return
            share = (_FETCHED_MAX - self._fetched) / len(affordable)
            if share < _LEAST and all(one.low for one in affordable):
                return
            self._read_slices(affordable, min(_SLICE_ROWS, max(share, _LEAST)))

    def _read_slices(self, sought: Sequence[IdLookup], fetched: float) -> None:
        parts: list[str] = []
        values: list[Any] = []
        for index, lookup in enumerate(sought):
            lookup.aim(self.first, fetched)
            parts.append(_EXACT if lookup.is_exact else _FILTERED)
            key = (lookup.low, lookup.top, lookup.key)
            full = to_tsquery(self._add_scope(lookup.expression))
            values += (index, *key, lookup.wants) if lookup.is_exact else (index, full, *key)
        slices: list[list[int | None]] = [[] for _ in sought]
        for index, id_ in self._connection.execute(" UNION ALL ".join(parts), values):
            slices[int(index)].append(id_)
        for lookup, ids in zip(sought, slices, strict=True):
            self._fetched += lookup.take(ids, self.first)

    def _read_window(self, expressions: Sequence[str], last: int) -> IdWindow:
        """Return the newest rows up to `last`, with the positions of every part of these expressions."""
        window = self._windows.setdefault(last, IdWindow())
        leaves: dict[str, None] = {}
        for expression in expressions:
            evaluate(expression, lambda leaf: leaves.setdefault(leaf), _nothing, _nothing)
        new = [leaf for leaf in leaves if leaf not in window.places]
        if not new:
            return window
        queries = [to_tsquery(self._add_scope(leaf)) for leaf in new]
        newest, values = _NEWEST, [self.first, last]
        if self._profile is not None:
            newest, values = _NEWEST_OF, [self._profile, last, self.first, last]
        columns = ", ".join(["count(*)", "min(id)", *[_PLACES] * len(new)])
        row = self._connection.execute(f"SELECT {columns} {newest}", (*queries, *values)).fetchone()
        assert row is not None  # an aggregate always returns one
        window.rows, window.low = row[0], row[1] or 0
        for leaf, ids in zip(new, row[2:], strict=True):
            window.places[leaf] = frozenset(map(int, ids.split(","))) if ids else frozenset()
        return window

    def _add_scope(self, expression: str) -> str:
        return f"{self._scope} AND {expression}" if self._scope else expression

    def _estimate_work(self, expression: str) -> float:
        """Return the largest number of messages that the index has to compare, by the server's statistics."""
        return self.messages * min(self._work(self._add_scope(expression)), 1.0)

    def _work(self, expression: str) -> float:
        return evaluate(expression, self.read_share, min, _add)

    def _key(self, leaf: str) -> str:
        """Return the index's query for a phrase, without very common words, which cost more than they save.

        It is empty if no other words remain.
        """
        tokens, is_prefix = parse_leaf(leaf)
        rare = [token for token in tokens if self._shares.get(token, 0.0) < _EVERYWHERE]
        if is_prefix or len(rare) == len(tokens):
            return to_tsquery(leaf)
        return " & ".join(map(quote_word, rare)) and f"({' & '.join(map(quote_word, rare))})"

    def read_share(self, leaf: str) -> float:
        """Return the share of messages that have the rarest word of a phrase, or a word with its prefix."""
        if (known_share := self._known.get(leaf)) is not None:
            return known_share
        tokens, is_prefix = parse_leaf(leaf)
        shares = [self._shares.get(token, self._least) for token in tokens]
        if tokens and is_prefix:
            begins = (share for word, share in self._shares.items() if word.startswith(tokens[-1]))
            shares[-1] = sum(begins) + _BEGINNINGS * self._least
        return min(shares, default=0.0)

    def _observed_share(self, leaf: str, window: IdWindow) -> float:
        """Return the share according to the newest rows for a single word, else according to the server."""
        tokens, is_prefix = parse_leaf(leaf)
        if len(tokens) > 1:
            return self.read_share(leaf)
        observed = (len(window.places[leaf]) + 3) / window.rows
        return observed if is_prefix else min(observed, self.read_share(leaf))

    def _expand_prefix(self, term: Term) -> str:
        stems = dict.fromkeys((term.prefix, *index_words(term.text)[:1]))
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
        assert row is not None  # the table exists
        return row[0] or 0, row[1] or 0, max(row[2], 1)


def _add(first: float, other: float) -> float:
    return first + other


def format_both(first: str, other: str) -> str:
    return f"({first} & {other})" if first and other else first or other


def format_either(first: str, other: str) -> str:
    return f"({first} | {other})" if first and other else ""


def _nothing(first: None, other: None) -> None:
    return None
