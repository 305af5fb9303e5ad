"""Find sessions by a part of their title or the beginning of their id, or by a filter that few match.

A part is looked up in an index of all runs of three characters, and the results are compared with the
title afterwards. A shorter part is looked up as the beginning of such runs; a team's database also has
runs of one and two. Parts that are common in titles are found among the newest sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from whet.late import late_pattern
from whet.store.database import is_team

NEWEST = 2_000
"""How many of the newest sessions are searched before the index is used."""
_FEW = 2_000
_KEYS_BY_FILTER = {
    "token": "SELECT session FROM api_sessions WHERE token = ?",
    "workspace": "SELECT key FROM sessions WHERE workspace = ?",
    "source": "SELECT key FROM sessions WHERE source = ?",
    "parent_session_id": "SELECT key FROM sessions WHERE parent_session_id = ? AND parent_session_id <> ''",
}
_WORDS = late_pattern(r'"([^"]+)"|(\S+)')
_RUN, _LAST = 3, "\U0010ffff"


def build_condition(text: str) -> tuple[str, list[Any]]:
    """Return a condition, with its values, that for each word of `text` a title contains it or an id begins
    with it. Quoted words are one."""
    condition = r"(title LIKE ? ESCAPE '\' OR id LIKE ? ESCAPE '\')"
    words = _split_words(text)
    values = [value for word in words for value in (f"%{escape_like(word)}%", f"{escape_like(word)}%")]
    return " AND ".join([condition] * len(words)), values


def build_index_condition(connection: apsw.Connection, text: str) -> tuple[str, list[Any]] | None:
    """Return a condition for the index that holds for every session that `build_condition` selects, with its
    values, or None if the text is too short for the index."""
    text = max(_split_words(text), key=len)  # every match has all words, so one suffices for the index
    ids = [text.lower(), text.lower() + _LAST]
    if is_team(connection):
        shortest = min(len(text), _RUN)
        subquery = f"SELECT key FROM sessions WHERE title_runs(title, 1) @> title_runs(?, {shortest})"
        values = [text]
    elif len(text) >= _RUN:
        runs = {text[at : at + _RUN].replace('"', '""') for at in range(len(text) - _RUN + 1)}
        subquery = "SELECT rowid FROM session_titles WHERE session_titles MATCH ?"
        values = [" AND ".join(f'"{run}"' for run in sorted(runs))]
    elif ids[0].casefold() == ids[0]:
        subquery, values = "SELECT doc FROM session_titles_runs WHERE term >= ? AND term < ?", ids
    else:  # the index folds letters; if one letter becomes several, or another one, its run is unknown
        return None
    return f"key IN ({subquery} UNION ALL SELECT key FROM sessions WHERE id >= ? AND id < ?)", [*values, *ids]


def _split_words(text: str) -> list[str]:
    words = [quoted or bare for quoted, bare in _WORDS.findall(text)]
    return words or [text]


def find_narrow_filter(connection: apsw.Connection, filters: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return a query for the keys of the sessions that match one of the filters, with its value, if few do;
    None if walking the sessions by time finds a page of them sooner."""
    for name, keys in _KEYS_BY_FILTER.items():
        if value := filters.get(name):
            counted = f"SELECT count(*) FROM ({keys} LIMIT {_FEW}) AS few"
            row = connection.execute(counted, (value,)).fetchone()
            if row is not None and row[0] < _FEW:
                return keys, value
    return None


def escape_like(text: str) -> str:
    """Give a text as LIKE takes it literally."""
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
