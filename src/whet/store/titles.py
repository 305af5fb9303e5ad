"""Build the conditions that find sessions by a part of their title, the beginning of their id, or a filter.

An index has all runs of three characters of the titles. A shorter part is looked up as the beginning of such
runs; a team's index also has runs of one and two. The results are compared with the title afterwards. Parts
that are common in titles are found among the newest sessions, without the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from whet.late import late_pattern
from whet.store.database import is_team

NEWEST = 2_000
"""How many of the newest sessions are searched before the index is used."""
_FEW_ROWS = 2_000
_KEYS_BY_FILTER = {
    "token": "SELECT session FROM api_sessions WHERE token = ?",
    "workspace": "SELECT key FROM sessions WHERE workspace = ?",
    "source": "SELECT key FROM sessions WHERE source = ?",
    "parent_session_id": "SELECT key FROM sessions WHERE parent_session_id = ? AND parent_session_id <> ''",
}
_WORDS = late_pattern(r'"([^"]+)"|(\S+)')
_RUN, _LAST = 3, "\U0010ffff"


def build_condition(text: str) -> tuple[str, list[Any]]:
    """Return the condition that, for each word of `text`, the title has it or the id begins with it.

    The condition comes with its values. Quoted words count as one.
    """
    condition = r"(title LIKE ? ESCAPE '\' OR id LIKE ? ESCAPE '\')"
    words = _split_words(text)
    values = [value for word in words for value in (f"%{escape_like(word)}%", f"{escape_like(word)}%")]
    return " AND ".join([condition] * len(words)), values


def build_index_condition(connection: apsw.Connection, text: str) -> tuple[str, list[Any]] | None:
    """Return a condition on the index with its values, or None if the index can't be used for the text.

    It holds for every session that `build_condition` selects, and for others.
    """
    text = max(_split_words(text), key=len)  # every match has all words, so the index needs only one
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
    """Return the query, with its value, for the keys of the sessions that match a filter which few match.

    Returns None if there is no such filter: then reading the sessions by time finds a page of them sooner.
    """
    for name, keys in _KEYS_BY_FILTER.items():
        if value := filters.get(name):
            counted = f"SELECT count(*) FROM ({keys} LIMIT {_FEW_ROWS}) AS few"
            row = connection.execute(counted, (value,)).fetchone()
            if row is not None and row[0] < _FEW_ROWS:
                return keys, value
    return None


def escape_like(text: str) -> str:
    """Escape a text so that LIKE matches it literally."""
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
