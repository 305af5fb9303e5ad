"""Find the messages that match a search best.

A message is scored together with two neighbours on each side. A term counts by its rarity (the idf of BM25):
fully in the message and partly in a neighbour, up to a ceiling, so that having all terms beats repeating
some. A hit has a term of its own. How often a term occurs in a message says little in a conversation, so
counts and lengths are not used (BM25 with both was no better). Only very long messages, which contain every
word, count a little less. If the lists of common terms were not read to the end, the texts of the best
messages are checked.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, NamedTuple, TypedDict

import apsw

from whet.contract.errors import StoreError
from whet.contract.messages import Role
from whet.store import index, rows, sessions
from whet.store import query as words
from whet.store.copies import Copies, find_nearest
from whet.store.database import is_team
from whet.store.postings import PostingReader, Postings, tokenize
from whet.store.query import Term
from whet.store.time_words import TimeSpan

FIRST_READ, READ_MAX, READ_ALL = 300, 1_500, 3_000
_TOGETHER_MAX = 300
LOOK_AT_ONCE, ROWS_AT_ONCE = 400, 100
_TEXTS_MAX, _TEXT_CHARS_MAX = 24, 3_000
_PARTS = ((0, 10), (1, 5), (-1, 5), (2, 3), (-2, 3))
"""The weight of a term, in tenths, at each distance from a message."""
_HAS_ALL = 1.25
_TIME_WEIGHT = 3.0
_LONG_BYTES = 2_000
_NEWEST = " ORDER BY m.at DESC, m.id DESC LIMIT ?"


class SearchScope(TypedDict, total=False):
    """The scope of a search. Missing fields do not restrict it, but private sessions need `include_private`.

    `since` is an ISO time, `profile` one person's sessions, `workspace` one folder's. `token` restricts the
    search to the sessions that this API token began. `asking` is the session whose turn searches; messages of
    that turn come last. `now` is the reference for "last week".
    """

    session_id: str | None
    role: Role | None
    since: str | None
    profile: str | None
    workspace: str | None
    token: str
    include_private: bool
    asking: str | None
    now: datetime | None


class MatchRow(NamedTuple):
    """A matching message."""

    id: int
    turn: int
    role: int
    at_ms: int
    session_id: str
    title: str
    size_bytes: int
    score: float = 0.0


class Ranking:
    """One search in a scope. It finds the matching messages that may be shown and ranks them."""

    def __init__(self, connection: apsw.Connection, scope: SearchScope, span: TimeSpan | None) -> None:
        self._connection = connection
        self._where = ["1"]
        self._values: list[Any] = []
        self._span = span
        self._forked: frozenset[int] = frozenset()
        first, last, marks = 0, (1 << 63) - 1, list[str]()
        session_id, role, since = scope.get("session_id"), scope.get("role"), scope.get("since")
        profile, workspace, token = scope.get("profile"), scope.get("workspace"), scope.get("token")
        if session_id is not None:
            first, last = rows.ids_of(sessions.key_of(connection, session_id))
        else:
            self._where += ["t.undone = ''", "s.kind <> 'review'"]
            self._forked = frozenset(row[0] for row in connection.execute("SELECT session FROM forks"))
            if not scope.get("include_private"):
                self._where.append("NOT s.private")
            if profile is not None:
                marks.append(f'"{index.profile_mark(profile)}"')
            if workspace is not None:
                marks.append(f'"{index.workspace_mark(workspace)}"')
        for condition, value in (("s.profile = ?", profile), ("s.workspace = ?", workspace)):
            if value is not None:
                self._restrict(condition, value)
        if token:
            self._restrict("s.key IN (SELECT session FROM api_sessions WHERE token = ?)", token)
        if role is not None:
            self._restrict("m.role = ?", rows.ROLES.index(role))
            marks.append(f'"{index.role_mark(rows.ROLES.index(role))}"')
        if since is not None:
            begin_ms = _parse_ms(since)
            self._restrict("m.at >= ?", begin_ms)
            first = max(first, _first_since(connection, begin_ms))
        self._last_ones = _open_turn_messages(connection, scope.get("asking"))
        self._reader = _reader_for(connection, first, last, marks, scope)

    def _restrict(self, condition: str, value: object) -> None:
        self._where.append(condition)
        self._values.append(value)

    def find_best(self, terms: Sequence[Term], limit: int) -> list[MatchRow]:
        """Return the best messages. Copies in forks are returned once, as the original."""
        return sorted(self._find_best(terms, limit), key=self._rank_of, reverse=True)[:limit]

    def _find_best(self, terms: Sequence[Term], limit: int) -> list[MatchRow]:
        """Return the best messages, unsorted.

        A message must have a searched phrase, unless none has one. Stop words count if nothing else matches.
        """
        telling = [term for term in terms if not term.is_stop]
        phrases = [term.match for term in telling if term.is_phrase]
        others = [term for term in telling if not term.is_phrase]
        matches: list[MatchRow] = []
        if phrases:
            matches = self._rank(others, limit, phrases) if others else []
            matches = matches or self._rank([term for term in telling if term.is_phrase], limit)
        if not matches and others:
            matches = self._rank(others, limit)
        if not matches and not phrases and len(telling) < len(terms):
            matches = self._rank([term for term in terms if term.is_stop], limit)
        if not matches and self._span is not None and not phrases:
            marks = index.time_marks(*self._span)
            if marks:
                any_of = Term(f"({' OR '.join(map(_quote, marks))})", "")
                matches = self._find_newest(self._reader.read_terms([any_of], LOOK_AT_ONCE)[0], limit)
        return matches

    def _rank(self, terms: Sequence[Term], limit: int, required: Sequence[str] = ()) -> list[MatchRow]:
        reader = self._reader
        before, reader.marks = reader.marks, [*reader.marks, *required]
        try:
            lists = [matches for matches in self._read_lists(terms) if matches.ids]
            if len(lists) == 1 and not lists[0].is_whole and self._span is None:
                return self._find_newest(lists[0], limit)
            partial = sorted((one for one in lists if not one.is_whole), key=lambda one: one.count)
            together = self._find_together(lists, partial)
            matches = self._find_best_visible(lists, together, limit, bool(partial))
            if not matches and partial:
                matches = self._find_newest(partial[0], limit)
            return matches
        finally:
            reader.marks = before

    def _read_lists(self, terms: Sequence[Term]) -> list[Postings]:
        """Read the postings of each term: a few of all, then more of the rarer ones."""
        lists = self._reader.read_terms(terms, FIRST_READ)
        budget = READ_ALL
        for postings in sorted((one for one in lists if not one.is_whole), key=lambda one: one.count):
            limit = min(READ_MAX, budget)
            if limit > FIRST_READ and postings.count < limit and len(lists) > 1:
                more = self._reader.read_more(postings, limit)
                lists[lists.index(postings)] = more
                budget -= len(more.ids)
        return lists

    def _find_together(self, lists: Sequence[Postings], partial: Sequence[Postings]) -> dict[int, float]:
        """Find further messages in which common terms occur together or with others, and return the least
        weight of each."""
        minimum_weights: dict[int, float] = {}
        complete = [postings for postings in lists if postings.is_whole]
        rarest = partial[:3]
        if len(partial) > 1:
            ids = self._add_meeting(
                minimum_weights, " AND ".join(postings.match for postings in partial), partial
            )
            for postings in partial:
                postings.places.update(ids)
        if len(partial) > 2:
            pairs = (f"({postings.match} AND {other.match})" for postings, other in combinations(rarest, 2))
            self._add_meeting(minimum_weights, f"({' OR '.join(pairs)})", rarest[-2:])
        for postings in rarest if complete else ():
            any_whole = " OR ".join(other.match for other in complete)
            ids = self._add_meeting(minimum_weights, f"({any_whole}) AND {postings.match}", (postings,))
            postings.places.update(ids)
        if self._span is not None and partial and (marks := index.time_marks(*self._span)):
            self._add_meeting(
                minimum_weights, f"({' OR '.join(map(_quote, marks))}) AND {rarest[0].match}", rarest[:1]
            )
        return minimum_weights

    def _add_meeting(self, minimums: dict[int, float], match: str, terms: Iterable[Postings]) -> list[int]:
        ids = self._reader.newest_in_time(match, _TOGETHER_MAX)
        weight = sum(postings.weight for postings in terms)
        for id_ in ids:
            if weight > minimums.get(id_, 0.0):
                minimums[id_] = weight
        return ids

    def _find_best_visible(
        self, lists: Sequence[Postings], together: dict[int, float], limit: int, read_texts: bool
    ) -> list[MatchRow]:
        """Return the best messages that may be shown, of equal ones the newer first."""
        weights: dict[int, float] = defaultdict(float)
        for postings in lists:
            weight = postings.weight
            for id_ in postings.ids:
                weights[id_] += weight
            postings.places -= self._last_ones
        for id_, weight in together.items():
            if weight > weights[id_]:
                weights[id_] = weight
        copies = Copies(self._connection, self._forked, weights)
        copies.fold(weights)
        copies.fold(together)
        for postings in lists:
            postings.places.update([copies.first[id_] for id_ in postings.places & copies.first.keys()])
        matches: list[MatchRow] = []
        for ids in _split_by_weight(weights, self._last_ones):
            scores = _score_messages(ids, lists)
            for id_ in together.keys() & scores.keys():
                scores[id_] = max(scores[id_], together[id_])
            matches += self._best_rows(scores, 2 * limit, copies)
            if len(matches) >= 2 * limit:
                break
        matches.sort(key=self._rank_of, reverse=True)
        if read_texts:
            matches = sorted(self._rescore_by_texts(matches, lists, limit), key=self._rank_of, reverse=True)
        return matches

    def _best_rows(self, scores: dict[int, float], limit: int, copies: Copies) -> list[MatchRow]:
        """Return the messages with the best scores that may be shown."""
        ids = sort_by_weight(scores)
        at_once = max(ROWS_AT_ONCE * (1 if self._span is None else 2), limit)
        matches: list[MatchRow] = []
        for begin in range(0, len(ids), at_once):
            part = {id_: scores[id_] for id_ in ids[begin : begin + at_once]}
            matches += (_weigh_row(row, self._span) for row in self._select_shown(part, copies))
            if len(matches) >= limit:
                break
        return matches

    def _rank_of(self, row: MatchRow) -> tuple[bool, float, int, int]:
        return row.id not in self._last_ones, row.score, row.at_ms, row.id

    def _rescore_by_texts(
        self, matches: list[MatchRow], lists: Sequence[Postings], limit: int
    ) -> list[MatchRow]:
        """Check which common terms occur in the best of these rows, and score them again."""
        needed_tokens = [
            (postings, set(_tokenize(self._connection, postings.term.text)))
            for postings in lists
            if not postings.is_whole
        ]
        count = max(_TEXTS_MAX, limit)
        texts = self._connection.execute(
            "SELECT m.id, role, substr(content, 1, ?), extra FROM json_each(?) j"
            " CROSS JOIN messages m ON m.id = CAST(j.value AS bigint)",
            (_TEXT_CHARS_MAX, json.dumps([row.id for row in matches[:count]])),
        ).fetchall()
        for id_, *values in texts:
            text = words.to_index_text(index.plain_text(*values)[:_TEXT_CHARS_MAX])
            tokens = set(_tokenize(self._connection, text))
            for postings, needed in needed_tokens:
                if needed <= tokens:
                    postings.places.add(id_)
        scores = _score_messages([row.id for row in matches[:count]], lists)
        matches[:count] = [
            _weigh_row(row._replace(score=scores[row.id]), self._span) for row in matches[:count]
        ]
        return matches

    def _find_newest(self, postings: Postings, limit: int) -> list[MatchRow]:
        """Return the newest messages that may be shown."""
        by_id: dict[int, MatchRow] = {}
        ids, is_last, at_once = postings.ids, postings.is_whole, max(LOOK_AT_ONCE, limit)
        while ids:
            copies = Copies(self._connection, self._forked, ids)
            copies.fold(batch := dict.fromkeys(ids, 0.0))
            newest = limit + len(self._last_ones)
            by_id |= {row.id: row for row in self._select_shown(batch, copies, newest)}
            if is_last or len(by_id) >= limit:
                break
            ids = self._reader.newest(postings.match, at_once, ids[-1] - 1)
            is_last, at_once = len(ids) < at_once, min(2 * at_once, READ_MAX)
        return sorted(by_id.values(), key=self._rank_of, reverse=True)

    def _select_shown(self, scores: dict[int, float], copies: Copies, newest: int = -1) -> list[MatchRow]:
        """Return the rows that may be shown, or the newest of them.

        A row that may not be shown is replaced by its nearest copies that may.
        """
        visible = self._select_visible(scores, -1 if copies.by_original else newest)
        if not copies.by_original or len(visible) == len(scores):
            return visible
        hidden = (scores.keys() - {row.id for row in visible}) & copies.by_original.keys()
        chains = [copies.chain(id_) for first in hidden for id_ in copies.by_original[first]]
        scored = {id_: scores[chain[-1]] for chain in chains for id_ in chain}
        by_id = {row.id: row for row in self._select_visible(scored)}
        return visible + [by_id[id_] for id_ in find_nearest(chains, by_id)]

    def _select_visible(self, scores: dict[int, float], newest: int = -1) -> list[MatchRow]:
        cursor = self._connection.execute(
            "SELECT m.id, m.turn, m.role, m.at, s.id, s.title, octet_length(m.content)"
            " FROM json_each(?) j CROSS JOIN messages m ON m.id = CAST(j.value AS bigint)"
            f" CROSS JOIN sessions s ON s.key = m.id >> {rows.SEQ_BITS}"
            " CROSS JOIN turns t ON t.session = s.key AND t.number = m.turn"
            f" WHERE {' AND '.join(self._where)}{_NEWEST if newest >= 0 else ''}",
            (json.dumps(list(scores)), *self._values, *([newest] if newest >= 0 else ())),
        )
        return [MatchRow(*row[:7], score=scores[row[0]]) for row in cursor]


def _split_by_weight(weights: dict[int, float], last_ones: Iterable[int]) -> Iterator[list[int]]:
    """Yield the ids by weight, in parts. Messages of the current turn come last."""
    last = [id_ for id_ in last_ones if weights.pop(id_, None) is not None]
    ids = sort_by_weight(weights)
    for begin in range(0, len(ids), LOOK_AT_ONCE):
        yield ids[begin : begin + LOOK_AT_ONCE]
    if last:
        yield last


def _weigh_row(row: MatchRow, span: TimeSpan | None) -> MatchRow:
    """Return the row with its score adjusted for length and time."""
    if row.size_bytes <= _LONG_BYTES and span is None:
        return row
    score = row.score
    if row.size_bytes > _LONG_BYTES:
        score /= 1 + 0.1 * math.log2(row.size_bytes / _LONG_BYTES)
    if span is not None and span.begin_ms <= row.at_ms < span.end_ms:
        score += _TIME_WEIGHT
    return row._replace(score=score)


def _tokenize(connection: apsw.Connection, text: str) -> list[str]:
    if is_team(connection):
        from whet.store.team_words import index_words  # noqa: PLC0415 - as in _reader_for

        return index_words(text)
    return tokenize(connection, text)


def sort_by_weight(weights: dict[int, float]) -> list[int]:
    """Return the ids by descending weight, of equal ones the newer first."""
    return sorted(sorted(weights, reverse=True), key=weights.__getitem__, reverse=True)


def _score_messages(ids: Iterable[int], lists: Sequence[Postings]) -> dict[int, float]:
    """Return the scores of these messages.

    They are summed term by term, because most terms occur near few of them.
    """
    scores = dict.fromkeys(ids, 0.0)
    around = [({id_ + off for id_ in scores}, off, tenths) for off, tenths in _PARTS]
    for postings in lists:
        tenths_of, weight = dict.fromkeys(scores, 0), 2 * postings.weight
        for near, off, tenths in around:
            for message_id in near & postings.places:
                tenths_of[message_id - off] += tenths
        for id_, tenths in tenths_of.items():
            if tenths:
                scores[id_] += weight * tenths / (tenths + 10)
    if len(lists) > 1:
        for id_ in set(scores).intersection(*(postings.places for postings in lists)):
            scores[id_] *= _HAS_ALL
    return scores


def _reader_for(
    connection: apsw.Connection, first: int, last: int, marks: Sequence[str], scope: SearchScope
) -> PostingReader:
    if is_team(connection):
        from whet.store.team_postings import TeamPostingReader  # noqa: PLC0415 - as above

        profile = scope.get("profile") if scope.get("session_id") is None else None
        return TeamPostingReader(connection, first, last, marks, profile)
    return PostingReader(connection, first, last, marks)


def _open_turn_messages(connection: apsw.Connection, session_id: str | None) -> frozenset[int]:
    """Return the ids of the person's messages in the open turn of a session."""
    if session_id is None:
        return frozenset()
    key = sessions.key_of(connection, session_id)
    turn = connection.execute(
        "SELECT number FROM turns WHERE session = ? AND ended = '' ORDER BY number DESC LIMIT 1", (key,)
    ).fetchone()
    if turn is None:
        return frozenset()
    cursor = connection.execute(
        "SELECT id FROM messages WHERE id >= ? AND id < ? AND turn = ? AND role = ?",
        (*rows.ids_of(key), turn[0], rows.USER),
    )
    return frozenset(row[0] for row in cursor)


def _first_since(connection: apsw.Connection, begin_ms: int) -> int:
    """Return an id before which no message has that time or a later one."""
    since = datetime.fromtimestamp(begin_ms / 1000, UTC)
    row = connection.execute(
        "SELECT min(key) FROM sessions WHERE last_active >= ?", (f"{since:%Y-%m-%dT%H:%M:%S}",)
    ).fetchone()
    return rows.row_id(row[0], 0) if row and row[0] else 1 << 62


def _quote(token: str) -> str:
    return f'"{token}"'


def _parse_ms(moment: str) -> int:
    """Return the milliseconds of an ISO time. A time without a zone is UTC."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError as error:
        raise StoreError(f"{moment!r} is not a date", hint="write it like 2026-11-21") from error
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
