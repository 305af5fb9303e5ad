"""Find out whether a transaction was committed if the server's answer to its COMMIT was lost.

Each attempt to commit writes a number, which its lane never uses twice, into the lane's only row, in the same
transaction. (PostgreSQL's own transaction ids don't serve: after a failover to a replica that had not
received the transaction, the id is used again.) The question also closes the attempt: it waits for an attempt
that is still running, and one that arrives at the server later is refused.
"""

from __future__ import annotations

from uuid import uuid4

from whet.postgres.connection import PostgresConnection
from whet.sqlite.lane import RowStatement

SCHEMA = """
CREATE TABLE team_commits (
  lane TEXT COLLATE "C" PRIMARY KEY,
  number BIGINT NOT NULL,
  committed BIGINT NOT NULL,
  at TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE FUNCTION whet_commit(which text, attempt bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO team_commits AS t (lane, number, committed) VALUES (which, attempt, attempt)
  ON CONFLICT (lane) DO UPDATE SET number = attempt, committed = attempt, at = now() WHERE t.number < attempt;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'attempt % of % was closed before it arrived', attempt, which USING ERRCODE = 'WF002';
  END IF;
END $$;

CREATE FUNCTION whet_close_attempt(which text, attempt bigint) RETURNS bigint LANGUAGE sql AS $$
  INSERT INTO team_commits AS t (lane, number, committed) VALUES (which, attempt, 0)
  ON CONFLICT (lane) DO UPDATE SET number = greatest(t.number, attempt) RETURNING committed
$$;
"""
COMMIT = RowStatement("SELECT whet_commit(?, ?)")
_CLOSE = b"SELECT whet_close_attempt($1, $2)"
FORGET_OLD_LANES = "DELETE FROM team_commits WHERE at < now() - interval '1 day'"


class CommitNumbers:
    """The numbers of one lane's attempts."""

    def __init__(self) -> None:
        self._lane = uuid4().hex
        self._last = 0

    def next_row(self) -> tuple[str, int]:
        """Return the lane and number of a new attempt, the values of COMMIT."""
        self._last += 1
        return self._lane, self._last

    def was_committed(self, connection: PostgresConnection, row: tuple[str, int]) -> bool:
        """Close an attempt for good and return whether it was committed. Raises psycopg.Error."""
        committed = connection.raw.execute(_CLOSE, self.next_row()).fetchone()
        return committed is not None and committed[0] == row[1]
