"""Which sessions are answered by a model that was chosen for them."""

from __future__ import annotations

import apsw


def m012_chosen_models(connection: apsw.Connection) -> None:
    """Add whether a session's model was chosen for it, rather than the configured one when it began."""
    connection.execute("ALTER TABLE sessions ADD COLUMN model_chosen INTEGER NOT NULL DEFAULT 0")
