"""The SQL by which a worker takes turns: people in turn, and turns of lost workers after growing pauses.

A turn can be taken if it is the next of its session (`is_next`) and no earlier turn of the session is open.
People with fewer running turns come first, then older turns. A turn whose worker was lost is taken again
after its lease and a pause, which doubles with each lost worker and differs from turn to turn. After
`MAX_LOST` lost workers it is set aside (`aside.py`).
"""

from __future__ import annotations

from whet.store.team_claims import UNTIL

MAX_LOST = 3
"""How many workers may be lost while they run a turn before it is set aside."""

LOST = "t.attempts - t.passed"
"""The number of workers that were lost while they ran a turn. `passed` counts attempts that ended
otherwise."""
IS_OWNED = (
    "EXISTS (SELECT 1 FROM team_processes p"
    " WHERE p.id = split_part(t.owner, ' ', 4) AND p.lease_until >= now() OFFSET 0)"
)
"""Whether the process that took a turn last still renews its lease."""
_PAUSE = (
    "current_setting('whet.lease_s')::float8 * interval '1 s'"
    f" * (power(2, greatest({LOST}, 1) - 1) - 1 + (hashtext(t.id || t.attempts) & 63) / 256.0)"
)

# OFFSET keeps the planner from reading whole tables to answer for a few rows.
_IS_FREE = """
  NOT EXISTS (SELECT 1 FROM team_turns o WHERE o.session = t.session AND o.number < t.number
    AND o.told = 0 AND (o.state <> 'done' OR o.lease_until > now()) OFFSET 0)
  AND NOT EXISTS (SELECT 1 FROM team_turns o
    WHERE o.session = t.session AND o.state = 'running' AND o.id <> t.id OFFSET 0)
  AND s.workspace NOT IN (SELECT value FROM json_each(?3))
"""
TAKE = f"""
WITH RECURSIVE people AS (
  (SELECT person FROM team_turns WHERE state = 'waiting' AND is_next = 1 ORDER BY person LIMIT 1)
  UNION ALL
  SELECT (SELECT t.person FROM team_turns t
          WHERE t.state = 'waiting' AND t.is_next = 1 AND t.person > p.person ORDER BY t.person LIMIT 1)
  FROM people p WHERE p.person IS NOT NULL),
running AS (SELECT person, count(*) AS count FROM team_turns WHERE state = 'running' GROUP BY person),
ready AS (
  SELECT c.id, c.number, coalesce(r.count, 0) + c.nth AS place FROM people p
  CROSS JOIN LATERAL (
    SELECT t.id, t.number, row_number() OVER (ORDER BY t.number) AS nth
    FROM team_turns t JOIN sessions s ON s.id = t.session
    WHERE t.state = 'waiting' AND t.is_next = 1 AND t.person = p.person AND t.is_interactive >= ?4
      AND {_IS_FREE}
    ORDER BY t.number LIMIT ?2 + 16) c
  LEFT JOIN running r ON r.person = p.person
  UNION ALL
  SELECT t.id, t.number, 0 FROM team_turns t JOIN sessions s ON s.id = t.session
  WHERE t.state = 'running' AND t.lease_until < now() AND t.lease_until + {_PAUSE} < now()
    AND ({LOST} < {MAX_LOST} OR {IS_OWNED}) AND {_IS_FREE}
    AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.session = s.key AND c.lease_until >= now()
      AND c.born <> split_part(?1, ' ', 4) OFFSET 0))
UPDATE team_turns t SET state = 'running', owner = ?1, attempts = attempts + 1, lease_until = {UNTIL},
  passed = passed + CASE WHEN state = 'running' AND {IS_OWNED} THEN 1 ELSE 0 END
WHERE id = ANY (ARRAY(
  SELECT locked.id FROM (SELECT id FROM ready ORDER BY place, number LIMIT ?2 + 16) r
  CROSS JOIN LATERAL (
    SELECT t.id FROM team_turns t
    WHERE t.id = r.id AND (t.state = 'waiting' OR (t.state = 'running' AND t.lease_until < now()))
    OFFSET 0 FOR UPDATE OF t SKIP LOCKED) locked
  LIMIT ?2))
RETURNING id, session, body, turn, attempts, cancelled, options,
  (SELECT workspace FROM sessions s WHERE s.id = t.session)
"""
KEEP = f"""
UPDATE team_turns SET lease_until = {UNTIL} WHERE id = ANY (ARRAY(
  SELECT t.id FROM unnest($1::text[], $2::bigint[]) AS k (id, attempts) JOIN team_turns t ON t.id = k.id
  WHERE t.attempts = k.attempts AND t.state = 'running' FOR UPDATE OF t SKIP LOCKED))
"""
MARK_MISSED = """
WITH RECURSIVE first AS (
  (SELECT id, session, number FROM team_turns WHERE state = 'waiting' AND is_next = 0
   ORDER BY session, number LIMIT 1)
  UNION ALL
  SELECT n.* FROM first f CROSS JOIN LATERAL (
    SELECT t.id, t.session, t.number FROM team_turns t
    WHERE t.state = 'waiting' AND t.is_next = 0 AND t.session > f.session
    ORDER BY t.session, t.number LIMIT 1) n)
UPDATE team_turns SET is_next = 1 WHERE id = ANY (ARRAY(
  SELECT f.id FROM first f WHERE NOT EXISTS (
    SELECT 1 FROM team_turns o WHERE o.session = f.session AND o.number < f.number
    AND o.state IN ('waiting', 'running') OFFSET 0)))
"""
"""Sets `is_next` of turns whose mark a worker of the previous version did not set."""
PLACE = """
WITH mine AS (
  SELECT t.error, t.person, (SELECT count(*) FROM team_turns o
    WHERE o.state = 'waiting' AND o.person = t.person AND o.number <= t.number) AS nth
  FROM team_turns t WHERE t.id = ? AND t.state = 'waiting' AND t.is_next = 1)
SELECT mine.error, sum(least(w.count, mine.nth))::bigint,
  EXISTS (SELECT 1 FROM team_turns WHERE state = 'running' AND lease_until >= now()) FROM mine,
  (SELECT person, count(*) AS count FROM team_turns WHERE state = 'waiting' GROUP BY person) w GROUP BY 1
"""
"""Why the waiting turn of a session was left to others, its place if people are served in turn, and whether
any turn is running."""
