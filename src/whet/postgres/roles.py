"""Database roles with the least rights, one for each kind of process that has tables of its own.

Workers, servers and gateways share a role, because they run the same turns on the same tables. A role owns
nothing, changes no schema and reads only its own tables. So a command that gets hold of a worker's connection
can't touch the tables of the confirmation service, which decides on that worker's actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import errors, sql

from whet.contract.errors import StoreUnwritable

AGENT_GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON migrations FROM {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
)
"""The rights of workers, servers and gateways."""
_CONNECT = "GRANT CONNECT ON DATABASE {database} TO {role}"
_CREATE = "CREATE ROLE {role} LOGIN"


def role_name(raw: psycopg.Connection, suffix: str) -> str:
    """Return a role's name for this database: roles belong to the server, which may have several."""
    return f"{raw.info.dbname}_{suffix}"


def grant_rights(raw: psycopg.Connection, suffix: str, grants: Sequence[str], *, create: bool) -> list[str]:
    """Give a role its rights and return the statements that were run. If the role is missing, it is created
    with `create`; otherwise nothing is run. Raises StoreUnwritable if it may not be created,
    psycopg.Error."""
    name = role_name(raw, suffix)
    exists = raw.execute("SELECT 1 FROM pg_roles WHERE rolname = $1", (name,)).fetchone() is not None
    if not exists and not create:
        return []
    templates = (*(() if exists else (_CREATE,)), _CONNECT, *grants)
    names = {"role": sql.Identifier(name), "database": sql.Identifier(raw.info.dbname)}
    statements = [sql.SQL(template).format(**names).as_string(raw) for template in templates]  # pyright: ignore[reportArgumentType] all are constants
    try:
        with raw.transaction():
            for statement in statements:
                raw.execute(statement.encode())
    except errors.InsufficientPrivilege as error:
        if exists:
            raise
        raise StoreUnwritable(
            f"{raw.info.user} may not create the role {name}",
            hint=f"let an administrator of the server run {statements[0]}, and repeat this",
        ) from error
    return statements


def describe_excess(raw: psycopg.Connection, schemas: Sequence[str], suffix: str) -> str:
    """Return a line for the administrator about rights that the connected role has beyond reading and writing
    rows of these schemas, or an empty string if it has none. Raises psycopg.Error."""
    row = raw.execute(_EXCESS, (list(schemas),)).fetchone()
    assert row is not None  # the query always returns a row
    rights = ", ".join(text for text, is_held in zip(_EXCESS_TEXTS, row, strict=True) if is_held)
    if not rights:
        return ""
    name = role_name(raw, suffix)
    return f"the database's role {rights}; whet team init URL --roles makes {name}, which does not"


_EXCESS_TEXTS = (
    "is a superuser",
    "may create roles or databases",
    "owns the tables",
    "reads tables of other schemas",
)
_EXCESS = """
WITH tables AS (
  SELECT c.oid, c.relowner, n.nspname AS schema FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')
SELECT r.rolsuper, r.rolcreaterole OR r.rolcreatedb,
  EXISTS (SELECT FROM tables WHERE schema = ANY($1) AND pg_has_role(relowner, 'USAGE')),
  EXISTS (SELECT FROM tables WHERE NOT schema = ANY($1) AND has_schema_privilege(schema, 'USAGE')
    AND has_table_privilege(oid, 'SELECT'))
FROM pg_roles r WHERE r.rolname = current_user"""
