"""A `state.db` as Hermes Agent 0.19 lays it out, filled with made-up sessions; for tests and measurements.

The columns are those of its schema 22 that an importer may read; the rows are our own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, parent_session_id TEXT, started_at REAL NOT NULL,
  ended_at REAL, end_reason TEXT, cwd TEXT, title TEXT, billing_provider TEXT, input_tokens INTEGER,
  output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER, reasoning_tokens INTEGER,
  actual_cost_usd REAL, estimated_cost_usd REAL, cost_status TEXT, message_count INTEGER, archived INTEGER
);
CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
  tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, finish_reason TEXT,
  reasoning TEXT, reasoning_content TEXT, active INTEGER NOT NULL DEFAULT 1,
  compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT
);
CREATE INDEX idx_messages_session ON messages (session_id, timestamp);
"""
BEGAN_S = 1_790_000_000.0
# fmt: off
_WORDS = [
    "build", "deploy", "test", "cache", "parser", "review", "branch", "merge", "index", "column",
    "socket", "thread", "token", "prompt", "window", "letter", "garden", "harbour", "copper",
    "violet", "lantern", "meadow", "orchard", "pepper", "quarry", "ribbon", "saddle", "timber",
    "数据", "検索",
]
# fmt: on


class HermesDb:
    """A new database at `path`; `close` when it is filled."""

    def __init__(self, path: Path, *, version: int = 22, wal: bool = False) -> None:
        self.db = apsw.Connection(str(path))
        if wal:
            self.db.pragma("journal_mode", "wal")
        self.db.execute(SCHEMA)
        self.db.execute("INSERT INTO schema_version VALUES (?)", (version,))

    def session(self, id_: str, rows: Sequence[dict[str, Any]], **columns: Any) -> None:
        """Add a session and its messages; a message's `calls` is a list of (id, name, arguments)."""
        values = {"id": id_, "source": "cli", "started_at": BEGAN_S, "cwd": "/home/u/shop"} | columns
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", tuple(values.values()))
        self.db.executemany(
            "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,"
            " active, compacted, reasoning) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [self._row(id_, number, row, values["started_at"]) for number, row in enumerate(rows)],
        )

    def _row(self, id_: str, number: int, row: dict[str, Any], began_s: float) -> tuple[Any, ...]:
        calls = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call, name, arguments in row.get("calls", ())
        ]
        return (
            id_,
            row["role"],
            row.get("content", ""),
            row.get("call_id"),
            json.dumps(calls) if calls else row.get("raw_calls"),
            row.get("tool"),
            began_s + number,
            row.get("active", 1),
            row.get("compacted", 0),
            row.get("reasoning"),
        )

    def close(self) -> None:
        """Finish the file."""
        self.db.close()


def fill(path: Path, sessions: int, messages: int, seed: int = 7) -> int:
    """Make `sessions` sessions of about `messages` messages each; give how many messages there are."""
    rng = random.Random(seed)
    made, total = HermesDb(path), 0
    made.db.execute("BEGIN")
    for number in range(sessions):
        rows = list(_talk(rng, f"s{number}", messages))
        total += len(rows)
        began_s = BEGAN_S + number * 600
        made.session(
            f"2026_{number:06d}", rows, started_at=began_s, ended_at=began_s + 500, end_reason="cli_close"
        )
    made.db.execute("COMMIT")
    made.close()
    return total


def _talk(rng: random.Random, name: str, messages: int) -> Iterator[dict[str, Any]]:
    said = 0
    while said < messages:
        yield {"role": "user", "content": _text(rng, 12)}
        for step in range(rng.randint(1, 3)):
            call = f"call_{name}_{said}_{step}"
            arguments = json.dumps({"command": f"grep -n {rng.choice(_WORDS)} {rng.choice(_WORDS)}.py"})
            yield {"role": "assistant", "calls": [(call, "terminal", arguments)]}
            code = int(rng.random() < 0.1)
            result = {"output": _text(rng, 40), "exit_code": code, "error": None}
            yield {"role": "tool", "content": json.dumps(result), "call_id": call, "tool": "terminal"}
            said += 2
        yield {"role": "assistant", "content": _text(rng, 30)}
        said += 2


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(_WORDS, k=words))
