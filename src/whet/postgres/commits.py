"""Whether a transaction was committed whose answer was lost, by a number of the lane's own.

The database's number of a transaction can be given out again after a failover to a replica that had not
received it. Here each attempt of a lane writes a number that the lane never uses twice, in the transaction
itself, into the lane's only row. Asking closes the attempt: if it is still running the question waits for its
end, and if it arrives at the server later it is refused.
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
        """Return the values of COMMIT for a new attempt."""
        self._last += 1
        return self._lane, self._last

    def was_committed(self, connection: PostgresConnection, row: tuple[str, int]) -> bool:
        """Close an attempt for good and return whether it was committed. Raises psycopg.Error."""
        found = connection.raw.execute(_CLOSE, self.next_row()).fetchone()
        return found is not None and found[0] == row[1]
