"""The service's tables in a team's database, in their own schema, with a second schema of noted rows.

The sealed sums are computed from each transaction's own writes: triggers note every row that is written,
changed or deleted, with the transaction's id, and the writer reads its own. A write by another program
changes no sum. It changes the tail's number, which makes the service check the tables.
"""

from __future__ import annotations

import re

import psycopg

from whet.contract.errors import SchemaTooNew, StoreError
from whet.postgres import commits
from whet.postgres.schema import SCHEMA_LOCK, translate_step
from whet_confirm.schema import STEPS
from whet_confirm.seals import is_sealed

HOME, NOTED = "whet_confirm", "whet_confirm_noted"
SEARCH_PATH = f"-c search_path={HOME},{NOTED},public"
GRANTS = (
    f"GRANT USAGE ON SCHEMA public, {HOME}, {NOTED} TO {{role}}",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {HOME} TO {{role}}",
    f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {HOME} TO {{role}}",
    f"GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA {NOTED} TO {{role}}",
    f"GRANT UPDATE ON {NOTED}.tail TO {{role}}",
    f"GRANT INSERT, UPDATE ON {NOTED}.team_commits TO {{role}}",
)
"""The rights that the service needs on its tables and on the noted rows. It owns none of them."""
_CREATE_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
# Only a file of an older version needs this step: a new database has no events and no deliveries.
_OLD_FILE_STEP = re.compile(r"^\s*INSERT INTO facts SELECT 'told_to'.*?;", re.DOTALL | re.MULTILINE)

_COMMITS = "commits"
_SET_UP = f"""
CREATE SCHEMA IF NOT EXISTS {HOME};
CREATE SCHEMA IF NOT EXISTS {NOTED};
CREATE TABLE IF NOT EXISTS {NOTED}.tail (one BIGINT PRIMARY KEY CHECK (one = 1), number BIGINT NOT NULL,
  xact XID8 NOT NULL);
INSERT INTO {NOTED}.tail VALUES (1, 0, '0') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {NOTED}.steps (name TEXT PRIMARY KEY);
CREATE OR REPLACE VIEW {NOTED}.sqlite_master AS
  SELECT 'table'::text AS type, tablename::text AS name, ''::text AS sql FROM pg_tables
  WHERE schemaname = '{HOME}';
"""
_NOTE = f"""
CREATE TABLE IF NOT EXISTS {NOTED}.{{0}} (LIKE {HOME}.{{0}}, is_new BOOLEAN NOT NULL,
  xact XID8 NOT NULL DEFAULT pg_current_xact_id(), place BIGINT GENERATED ALWAYS AS IDENTITY);
CREATE INDEX IF NOT EXISTS {{0}}_by_xact ON {NOTED}.{{0}} (xact);
CREATE OR REPLACE FUNCTION {NOTED}.note_{{0}}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN INSERT INTO {NOTED}.{{0}} SELECT (OLD).*, false; END IF;
  IF TG_OP <> 'DELETE' THEN INSERT INTO {NOTED}.{{0}} SELECT (NEW).*, true; END IF;
  UPDATE {NOTED}.tail SET number = number + 1, xact = pg_current_xact_id()
  WHERE xact <> pg_current_xact_id();
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON {HOME}.{{0}}
  FOR EACH ROW EXECUTE FUNCTION {NOTED}.note_{{0}}();
"""


def list_noted_tables() -> list[str]:
    """Return the tables whose rows are noted: the sealed ones, and the log."""
    names = dict.fromkeys(_CREATE_TABLE.findall("\n".join(STEPS)))
    return [name for name in names if name == "events" or (is_sealed(name) and name != "outbox")]


def init(raw: psycopg.Connection) -> list[str]:
    """Apply the missing steps, all or none, and return their names. Raises SchemaTooNew."""
    with raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock($1)", (SCHEMA_LOCK,))
        raw.execute(_SET_UP.encode())
        applied = _applied_steps(raw)
        if _COMMITS not in applied:
            raw.execute(f"SET LOCAL search_path = {NOTED}".encode())
            raw.execute(commits.SCHEMA.encode())
            raw.execute(f"INSERT INTO {NOTED}.steps VALUES ($1)".encode(), (_COMMITS,))
        raw.execute(f"SET LOCAL search_path = {HOME}, public".encode())
        missing = [number for number in range(1, len(STEPS) + 1) if f"c{number:03}" not in applied]
        for number in missing:
            raw.execute(translate_step(_OLD_FILE_STEP.sub("", STEPS[number - 1])).encode())
            raw.execute(f"INSERT INTO {NOTED}.steps VALUES ($1)".encode(), (f"c{number:03}",))
        if missing:
            for name in list_noted_tables():
                raw.execute(_NOTE.format(name).encode())
    return [f"confirm {number}" for number in missing]


def check(raw: psycopg.Connection) -> None:
    """Raise StoreError if tables or steps are missing, or SchemaTooNew if there are unknown steps."""
    row = raw.execute(f"SELECT to_regclass('{NOTED}.steps')".encode()).fetchone()
    applied: set[str] = set() if row is None or row[0] is None else _applied_steps(raw)
    expected = {_COMMITS, *(f"c{number:03}" for number in range(1, len(STEPS) + 1))}
    if expected - applied:
        raise StoreError(
            "the team's database lacks the confirmation service's tables, or steps of them",
            hint="set it up: whet team init URL",
        )
    if applied - expected:
        raise SchemaTooNew(
            "the confirmation service's tables are a newer Whet's", hint="upgrade Whet on this machine"
        )


def _applied_steps(raw: psycopg.Connection) -> set[str]:
    return {row[0] for row in raw.execute(f"SELECT name FROM {NOTED}.steps".encode()).fetchall()}
