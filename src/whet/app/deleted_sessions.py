"""Delete the data of deleted sessions that other parts of a home still hold."""

from __future__ import annotations

from whet.clock import Clock
from whet.config.paths import Home
from whet.store import session_deletion
from whet.store.database import StateDatabase


def forget_deleted_sessions(home: Home, database: StateDatabase, clock: Clock) -> int:
    """Delete the workspace records of deleted sessions and the examples taken from them. Returns the number
    of deleted steps. Raises StoreError, ConfigError."""

    def filter_existing(ids: set[str]) -> set[str]:
        return database.read_now(lambda db: session_deletion.filter_existing_ids(db, ids))

    if home.warm.is_dir():
        from whet.warm.forgetting import forget_examples  # noqa: PLC0415 - few homes need it, and seldom

        forget_examples(home, filter_existing)
    if not home.rewind.is_dir():
        return 0
    from whet.rewind.forgetting import forget_all_but  # noqa: PLC0415 - few homes need it, and seldom

    return forget_all_but(home.rewind, filter_existing, clock)
