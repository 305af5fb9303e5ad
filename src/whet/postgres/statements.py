"""Translate the store's SQL, which is written for both databases, for PostgreSQL.

Most statements only change their placeholders. SQLite's own syntax (`INSERT OR IGNORE`, a number as a
condition, case-insensitive `LIKE`) is translated here, once for each statement's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PART = re.compile(r"('(?:[^']|'')*')|(\?\d*)|(--[^\n]*)")
_FLAGS = "private|dirty|is_group|held_out|randomised|paused|by_hand|told|pinned"
_IS_FLAG = re.compile(rf"\b(WHERE|AND|OR|NOT)(\s+\(?)((?:\w+\.)?(?:{_FLAGS}))\b(?!\s*(?:[=<>,]|IN\b|IS\b))")
_WORDS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?<![\w.\"])user\b(?!\")"), '"user"'),
    (re.compile(r"\.user\b"), '."user"'),
    (re.compile(r"\bLIKE\b"), "ILIKE"),
    (re.compile(r" NOT INDEXED\b"), ""),
    (re.compile(r"\browid\b"), "ctid"),
    (re.compile(r"\bCROSS JOIN (\S+ \w+) ON\b"), r"JOIN \1 ON"),
    (re.compile(r"\bLIMIT -1\b"), "LIMIT ALL"),
    (re.compile(r"\bsubstr\(([\w.]+), -(\d+)\)"), r"right(\1, \2)"),
    (re.compile(r"\bchar\(10\)"), "chr(10)"),
    (re.compile(r"\bWHERE 1\b(?!\s*=)"), "WHERE true"),
    (re.compile(r"\b(max|min)\((?=[^()]*,)"), lambda match: _OF_SEVERAL[match[1]]),
    (re.compile(r"\bgroup_concat\((\w+)\)"), r"string_agg(CAST(\1 AS text), ',')"),
    (_IS_FLAG, r"\1\2(\3 <> 0)"),
)
_OF_SEVERAL = {"max": "greatest(", "min": "least("}
_LIMIT = re.compile(r"\bLIMIT $")
_INSERT_OR = re.compile(r"^\s*INSERT OR (IGNORE|REPLACE) INTO (\w+)\s*(?:\(([^)]*)\))?", re.DOTALL)

Keys = Callable[[str], tuple[list[str], list[str]]]
"""Returns the columns of a table, and those of its primary key."""


def translate(sql: str, keys: Keys) -> str:
    """Return the statement for PostgreSQL, with its placeholders as $1, $2, ..."""
    sql = _convert_upsert(sql, keys) if " OR " in sql else sql
    pieces: list[str] = []
    count, position = 0, 0
    for part in _PART.finditer(sql):
        pieces.append(_replace_words(sql[position : part.start()]))
        position = part.end()
        literal, mark, _comment = part.groups()
        if literal:
            pieces.append(literal)
        elif mark:
            count = int(mark[1:]) if len(mark) > 1 else count + 1
            is_limit = _LIMIT.search(pieces[-1]) is not None
            pieces.append(f"nullif(${count}, -1)" if is_limit else f"${count}")
    pieces.append(_replace_words(sql[position:]))
    return "".join(pieces)


def _replace_words(text: str) -> str:
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    return text


def _convert_upsert(sql: str, keys: Keys) -> str:
    match = _INSERT_OR.match(sql)
    if match is None:
        return sql
    how, table, column_list = match.groups()
    listed = f" ({column_list})" if column_list else ""
    insert = f"INSERT INTO {table}{listed} {sql[match.end() :]}"
    if how == "IGNORE":
        return f"{insert} ON CONFLICT DO NOTHING"
    columns, key = keys(table)
    changed = [name.strip() for name in column_list.split(",")] if column_list else columns
    changes = ", ".join(f"{name} = excluded.{name}" for name in changed if name not in key)
    return f"{insert} ON CONFLICT ({', '.join(key)}) DO " + (
        f"UPDATE SET {changes}" if changes else "NOTHING"
    )
