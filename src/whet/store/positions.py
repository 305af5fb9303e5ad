"""How far a context engine has read a session, as the number of the last message."""

from __future__ import annotations

from collections.abc import Mapping

import apsw


def read(connection: apsw.Connection, key: int, engine: str) -> dict[str, int]:
    """Return an engine's positions in the session with this key, by the engine's names for them."""
    rows = connection.execute(
        "SELECT name, seq FROM engine_positions WHERE session = ? AND engine = ?", (key, engine)
    )
    return {str(name): int(seq) for name, seq in rows}


def write(connection: apsw.Connection, key: int, engine: str, positions: Mapping[str, int]) -> None:
    """Store positions. A position never goes back."""
    connection.executemany(
        "INSERT INTO engine_positions (session, engine, name, seq) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (session, engine, name) DO UPDATE"
        " SET seq = max(engine_positions.seq, excluded.seq)",
        [(key, engine, name, seq) for name, seq in positions.items()],
    )
