"""The schema's history: numbered steps, each applied once, in order, in one transaction.

`user_version` is the number of the last one; the table `migrations` says what was applied when. A file
from a newer version is refused before anything is written to it.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from whet.sqlite.reading import has_step
from whet.store.migrations.m001_sessions import m001_sessions
from whet.store.migrations.m002_learning import m002_learning
from whet.store.migrations.m003_reviews import m003_reviews
from whet.store.migrations.m004_imports import m004_imports
from whet.store.migrations.m005_warm import m005_warm
from whet.store.migrations.m006_outcomes import m006_outcomes
from whet.store.migrations.m007_people import m007_people
from whet.store.migrations.m008_schedules import m008_schedules
from whet.store.migrations.m009_api import m009_api
from whet.store.migrations.m010_gateway import m010_gateway
from whet.store.migrations.m011_moved import m011_moved
from whet.store.migrations.m012_chosen_models import m012_chosen_models

STEPS: tuple[Callable[[apsw.Connection], None], ...] = (
    m001_sessions,
    m002_learning,
    m003_reviews,
    m004_imports,
    m005_warm,
    m006_outcomes,
    m007_people,
    m008_schedules,
    m009_api,
    m010_gateway,
    m011_moved,
    m012_chosen_models,
)


def is_current(connection: apsw.Connection, path: str) -> bool:
    """Say whether nothing has to be applied. Raises SchemaTooNew; writes nothing."""
    return has_step(connection, len(STEPS), path, "set WHET_HOME to another folder")


def migrate(connection: apsw.Connection, path: str, now: str) -> None:
    """Apply what is missing, all or nothing; another process doing the same is waited for."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_current(connection, path):
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT NOT NULL)"
            )
            for number, step in enumerate(STEPS, 1):
                if number > int(connection.pragma("user_version")):
                    step(connection)
                    connection.execute("INSERT INTO migrations VALUES (?, ?)", (step.__name__, now))
                    connection.pragma("user_version", number)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
