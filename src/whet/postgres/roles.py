"""Database roles with the least rights: one for the team's processes, others for whoever has its own tables.

Workers, servers and gateways share a role, because they run the same turns on the same tables. A role owns
nothing, changes no schema and reads no tables but its own, so a command that gets hold of a worker's
connection can't touch the tables of the confirmation service that judges the worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

AGENT_GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON migrations FROM {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
)
"""What workers, servers and gateways need."""
_CONNECT = "GRANT CONNECT ON DATABASE {database} TO {role}"
_CREATE = "CREATE ROLE {role} LOGIN"


def role_name(raw: psycopg.Connection, suffix: str) -> str:
    """Return a role's name for this database: roles belong to the server, which may have several."""
    return f"{raw.info.dbname}_{suffix}"


def grant_rights(raw: psycopg.Connection, suffix: str, grants: Sequence[str], *, create: bool) -> list[str]:
    """Give a role its rights and return the statements. A missing role is created if `create` is set, and
    otherwise nothing is done. Raises psycopg.Error."""
    name = role_name(raw, suffix)
    is_there = raw.execute("SELECT 1 FROM pg_roles WHERE rolname = $1", (name,)).fetchone() is not None
    if not is_there and not create:
        return []
    templates = (*(() if is_there else (_CREATE,)), _CONNECT, *grants)
    names = {"role": sql.Identifier(name), "database": sql.Identifier(raw.info.dbname)}
    statements = [sql.SQL(template).format(**names).as_string(raw) for template in templates]  # pyright: ignore[reportArgumentType] all are constants
    with raw.transaction():
        for statement in statements:
            raw.execute(statement.encode())
    return statements
