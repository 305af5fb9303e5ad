"""Let plugins read the stored sessions, as `hermes_state.SessionDB`. Private sessions are left out.

Methods have the names and results of Hermes Agent's class. The methods that write are absent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.contract.messages import to_dict
from whet.store import database, export, search, sessions

T = TypeVar("T")


class PastSessions:
    """Reads the stored sessions of one home. Close it after use."""

    def __init__(self, home: Path) -> None:
        self._database = database.open_store(Home(home), SystemClock())

    def __enter__(self) -> PastSessions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """Return a session, or None if it does not exist or is private."""
        with suppress(NotFound):
            row = self._read(lambda db: sessions.get(db, session_id))
            return None if row.private else _to_fields(row)
        return None

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the session's full id, or None if no single session matches."""
        with suppress(NotFound):
            return self._read(lambda db: sessions.resolve_id(db, session_id_or_prefix))
        return None

    def get_session_title(self, session_id: str) -> str | None:
        """Return a session's title, or None."""
        session = self.get_session(session_id)
        return session["title"] or None if session else None

    def list_sessions_rich(
        self, source: str | None = None, limit: int = 20, offset: int = 0, **options: Any
    ) -> list[dict[str, Any]]:
        """Return the sessions that are not private, the last active first."""
        del options
        rows = self._read(lambda db: sessions.list_sessions(db, limit, offset=offset, source=source or ""))
        return [_to_fields(row) for row in rows if not row.private]

    search_sessions = list_sessions_rich

    def get_messages(self, session_id: str, **options: Any) -> list[dict[str, Any]]:
        """Return the messages of a session, oldest first. A private session has none here."""
        del options
        if self.get_session(session_id) is None:
            return []
        messages = self._read(lambda db: list(export.iter_messages(db, session_id)))
        return [
            {"id": number, "session_id": session_id, **to_dict(message)}
            for number, message in enumerate(messages, 1)
        ]

    get_messages_as_conversation = get_messages

    def search_messages(self, query: str, limit: int = 20, **options: Any) -> list[dict[str, Any]]:
        """Return the messages that match the query best, without those of private sessions."""
        del options
        hits = search.find_now(self._database, query, limit)
        return [
            {
                "id": hit.seq,
                "session_id": hit.session_id,
                "role": hit.role,
                "snippet": hit.snippet,
                "timestamp": _to_seconds(hit.when),
            }
            for hit in hits
            if self.get_session(hit.session_id) is not None
        ]

    def session_count(self, **options: Any) -> int:
        """Return the number of sessions with a person."""
        del options
        return self._read(sessions.count_chats)

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of messages of a session, or of all."""
        if session_id is None:
            return self._read(sessions.read_stats).messages
        session = self.get_session(session_id)
        return session["message_count"] if session else 0

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return self._database.read_now(query)


def _to_fields(row: sessions.SessionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "source": row.source,
        "model": row.model,
        "title": row.title,
        "cwd": row.workspace,
        "parent_session_id": row.parent_session_id or None,
        "started_at": _to_seconds(row.started),
        "ended_at": _to_seconds(row.ended) if row.ended else None,
        "last_active": _to_seconds(row.last_active),
        "end_reason": row.end_reason or None,
        "message_count": row.messages,
        "tool_call_count": row.tool_calls,
        "preview": row.title,
    }


def _to_seconds(when: str) -> float:
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return 0.0
