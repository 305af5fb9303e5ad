"""The schema's steps that only a team's database needs, in order. A published step is never changed, except
that statements may be dropped whose result a later step replaces in any case."""

from __future__ import annotations

from whet.postgres import commits

# A lease, measured by the database's clock, and a fence, a number that only grows. Every transaction of a
# turn checks its fence: that locks the row until the commit, so that a take-over has to wait for it.
_FENCE = """
ALTER TABLE claims ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE claims ADD COLUMN lease_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity';
CREATE INDEX claims_by_token ON claims (token);
CREATE SEQUENCE team_fences;

CREATE FUNCTION whet_fence(which bigint, who text, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM claims WHERE session = which AND token = who AND fence = number FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'session % is no longer held under number %', which, number USING ERRCODE = 'WF001';
  END IF;
END $$;
"""

# One row for each searchable message: its words with their positions.
_SEARCH = """
CREATE TABLE message_words (id BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);
CREATE INDEX message_words_by_word ON message_words USING gin (words);
"""

# Requested turns that any worker may take.
_QUEUE = """
CREATE TABLE team_turns (
  id TEXT COLLATE "C" PRIMARY KEY,
  session TEXT COLLATE "C" NOT NULL,
  number BIGINT GENERATED ALWAYS AS IDENTITY,
  body TEXT NOT NULL,
  state TEXT COLLATE "C" NOT NULL DEFAULT 'waiting',
  turn BIGINT NOT NULL DEFAULT 0,
  owner TEXT NOT NULL DEFAULT '',
  attempts BIGINT NOT NULL DEFAULT 0,
  lease_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity',
  asked TIMESTAMPTZ NOT NULL DEFAULT now(),
  ended TIMESTAMPTZ,
  reason TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX team_turns_open ON team_turns (number) WHERE state IN ('waiting', 'running');
CREATE INDEX team_turns_by_session ON team_turns (session, number) WHERE state IN ('waiting', 'running');
"""

# Events of turns for listeners in any process, messages to a turn that runs in another process, and questions
# of such a turn. `told`: whether the turn's end is among the events; until then the next turn of its session
# waits, so that events keep their order.
_STREAMS = """
ALTER TABLE team_turns ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
ALTER TABLE team_turns ADD COLUMN cancelled BIGINT NOT NULL DEFAULT 0;
ALTER TABLE team_turns ADD COLUMN told BIGINT NOT NULL DEFAULT 1;
ALTER TABLE team_turns ALTER COLUMN told SET DEFAULT 0;
UPDATE team_turns SET told = 0 WHERE state IN ('waiting', 'running');
CREATE INDEX team_turns_untold ON team_turns (session, number) WHERE told = 0;
CREATE TABLE team_events (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session TEXT COLLATE "C" NOT NULL,
  turn TEXT COLLATE "C" NOT NULL,
  body TEXT NOT NULL,
  at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX team_events_by_session ON team_events (session, id);
CREATE INDEX team_events_by_age ON team_events USING brin (at);
CREATE TABLE team_said (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session TEXT COLLATE "C" NOT NULL,
  turn TEXT COLLATE "C" NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX team_said_by_turn ON team_said (turn);
CREATE TABLE team_questions (
  id TEXT COLLATE "C" PRIMARY KEY,
  turn TEXT COLLATE "C" NOT NULL,
  attempts BIGINT NOT NULL,
  body TEXT NOT NULL,
  answer TEXT,
  until TIMESTAMPTZ NOT NULL
);
"""

_REPLACED = "-- A later step replaces what this one made."

# Processes that own rows but hold no lease of a session. The search index keeps new entries in a list that
# every search reads whole, so the list is limited to 256 kB instead of 4 MB.
_PROCESSES = """
CREATE TABLE team_processes (id TEXT COLLATE "C" PRIMARY KEY, lease_until TIMESTAMPTZ NOT NULL);
ALTER INDEX message_words_by_word SET (gin_pending_list_limit = 256);
"""

# All substrings of one, two and three characters of a title, for searching parts of it.
_SHORT_TITLES = """
DROP INDEX IF EXISTS sessions_by_title;
DROP FUNCTION IF EXISTS title_runs(text);
CREATE FUNCTION title_runs(title text, shortest int) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(array_agg(DISTINCT substr(lower(title), at, size)), '{}')
   FROM generate_series(shortest, 3) AS size, generate_series(1, length(lower(title)) - size + 1) AS at $$;
CREATE INDEX sessions_by_title ON sessions USING gin (title_runs(title, 1));
"""

# Indexes for the newest messages of all sessions or of one person, so that older ones are not read.
_NEWEST = """
CREATE INDEX message_words_by_age ON message_words USING brin (id)
  WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX sessions_by_person ON sessions (profile, key);
"""

# Stores the start of a call and checks the fence in one statement. Refused if another worker has the session
# or has started the call, or if the call's row is missing because a replica without it took over.
_STARTS = """
CREATE FUNCTION whet_start_call(
  which bigint, who text, fence bigint, number bigint, at bigint, decided text, is_repeat bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM whet_fence(which, who, fence);
  UPDATE tool_calls SET started = at, decided_by = decided
  WHERE session = which AND seq = number AND (started IS NULL OR is_repeat <> 0);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'call % of session % is not there to start', number, which USING ERRCODE = 'WF001';
  END IF;
END $$;
"""

# `person`: the owner of the session. `is_next`: no earlier turn of its session is open. `passed`: the
# attempts that do not count towards the limit, because the worker went on with the turn.
_FAIRNESS = """
ALTER TABLE team_turns ADD COLUMN person TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE team_turns ADD COLUMN is_interactive BIGINT NOT NULL DEFAULT 0;
ALTER TABLE team_turns ADD COLUMN is_next BIGINT NOT NULL DEFAULT 0;
ALTER TABLE team_turns ADD COLUMN passed BIGINT NOT NULL DEFAULT 0;
CREATE INDEX team_turns_next ON team_turns (person, number) WHERE state = 'waiting' AND is_next = 1;
CREATE INDEX team_turns_unmarked ON team_turns (session, number) WHERE state = 'waiting' AND is_next = 0;
CREATE INDEX team_turns_waiting ON team_turns (person, number) WHERE state = 'waiting';
CREATE INDEX team_turns_running ON team_turns (session) WHERE state = 'running';
CREATE INDEX team_turns_aside ON team_turns (number) WHERE state = 'aside';
"""

# Stores the number of a turn when it begins. Refused if another worker has taken the turn.
_BEGIN = """
CREATE FUNCTION whet_begin_turn(which text, attempt bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE team_turns SET turn = (
    SELECT max(t.number) FROM turns t JOIN sessions s ON s.key = t.session WHERE s.id = team_turns.session)
  WHERE id = which AND attempts = attempt AND state = 'running' AND turn = 0;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'turn % was taken by another worker', which USING ERRCODE = 'WF001';
  END IF;
END $$;
"""

# One call each for the beginning of a turn and the release of its session, which only write.
_CALLS = """
CREATE FUNCTION whet_open_turn(which bigint, turn_number bigint, turn_id text, at text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE turns SET ended = at, reason = 'crashed'
  WHERE session = which AND number = turn_number - 1 AND ended = '';
  INSERT INTO turns (session, number, id, started) VALUES (which, turn_number, turn_id, at);
  UPDATE sessions SET last_active = at, dirty = 1, turns = turns + 1, messages = messages + 1, ended = '',
    end_reason = '' WHERE key = which;
END $$;

CREATE FUNCTION whet_release(which bigint, who text, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM claims WHERE session = which AND token = who AND fence = number;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'session % is no longer held under number %', which, number USING ERRCODE = 'WF001';
  END IF;
END $$;
"""

# Queueing a turn locks the open turn of its session, so that both see each other without a lock of the whole
# team. `WF003`: too many turns of this person wait. Closing a turn returns the end as it is stored. Its
# unread messages become turns of their own, unless it was cancelled.
_SCOPES = """
CREATE OR REPLACE FUNCTION whet_ask_turn(
  turn_id text, in_session text, message text, turn_options text, interactive bigint, most bigint,
  channel text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  who text := coalesce((SELECT profile FROM sessions WHERE id = in_session), '');
BEGIN
  IF (SELECT count(*) FROM (
    SELECT 1 FROM team_turns WHERE state = 'waiting' AND person = who LIMIT most) w) >= most THEN
    RAISE EXCEPTION '% turns of yours wait already, the oldest for % s', most, (
      SELECT round(extract(epoch FROM now() - min(asked))) FROM team_turns
      WHERE state = 'waiting' AND person = who) USING ERRCODE = 'WF003';
  END IF;
  PERFORM 1 FROM team_turns WHERE session = in_session AND state IN ('waiting', 'running') FOR SHARE;
  INSERT INTO team_turns (id, session, body, options, is_interactive, person, is_next)
  SELECT turn_id, in_session, message, turn_options, interactive, who, CASE WHEN EXISTS (SELECT 1
    FROM team_turns WHERE session = in_session AND state IN ('waiting', 'running')) THEN 0 ELSE 1 END;
  PERFORM pg_notify(channel, '');
END $$;

DROP FUNCTION IF EXISTS whet_close_turn(text, text, text, text, text);
CREATE FUNCTION whet_close_turn(
  which text, new_state text, why text, message text, ended_channel text
) RETURNS TABLE (ended_reason text, ended_error text, ended_attempts bigint) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE team_turns t SET state = new_state, ended = now(), reason = why, error = message
  WHERE t.id = which AND t.state = 'running';
  IF why <> 'cancelled' THEN
    INSERT INTO team_turns (id, session, body, options, person, is_interactive)
    SELECT s.turn || '.' || s.id, s.session, s.body, t.options, t.person, t.is_interactive
    FROM team_said s JOIN team_turns t ON t.id = s.turn WHERE s.turn = which ORDER BY s.id;
  END IF;
  DELETE FROM team_said WHERE turn = which;
  DELETE FROM team_questions WHERE turn = which;
  UPDATE team_turns SET is_next = 1 WHERE id = (
    SELECT n.id FROM team_turns t JOIN team_turns n ON n.session = t.session AND n.state = 'waiting'
    WHERE t.id = which ORDER BY n.number LIMIT 1);
  PERFORM pg_notify(ended_channel, which);
  RETURN QUERY SELECT t.reason, t.error, t.attempts FROM team_turns t WHERE t.id = which;
END $$;
"""

# Claims a session and then checks, in the same call, that it is as the worker knows it. `WF004`: another
# process holds the session, or has changed it.
_CLAIM = """
CREATE FUNCTION whet_take(which bigint, who text, at_host text, at_pid bigint, process text)
RETURNS bigint LANGUAGE sql AS $$
  INSERT INTO claims AS c (session, token, host, pid, born, renewed, fence, lease_until)
  VALUES (which, who, at_host, at_pid, process, '', nextval('team_fences'),
    now() + current_setting('whet.lease_s')::float8 * interval '1 s')
  ON CONFLICT (session) DO UPDATE SET token = who, host = at_host, pid = at_pid, born = process,
    fence = excluded.fence, lease_until = excluded.lease_until
  WHERE c.token = who OR c.lease_until < now() RETURNING fence
$$;

CREATE FUNCTION whet_claim(
  which bigint, who text, at_host text, at_pid bigint, process text,
  known_epoch bigint, known_turn bigint, next_number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  taken bigint := whet_take(which, who, at_host, at_pid, process);
BEGIN
  IF taken IS NULL OR NOT EXISTS (SELECT 1 FROM sessions WHERE key = which AND epoch = known_epoch)
    OR known_turn <> (SELECT coalesce(max(number), 0) FROM turns WHERE session = which)
    OR EXISTS (SELECT 1 FROM messages WHERE id >= (which << 22) + next_number AND id < (which + 1) << 22)
  THEN
    RAISE EXCEPTION 'session % is held or was changed', which USING ERRCODE = 'WF004';
  END IF;
  RETURN taken;
END $$;

CREATE FUNCTION whet_add_message(
  number bigint, in_turn bigint, from_role bigint, sent bigint, body text, more text
) RETURNS void LANGUAGE sql AS $$
  INSERT INTO messages (id, turn, role, at, content, extra)
  VALUES (number, in_turn, from_role, sent, body, more)
$$;

CREATE FUNCTION whet_mark_indexed(which bigint, reached bigint, turn_count bigint)
RETURNS void LANGUAGE sql AS $$
  UPDATE sessions SET indexed_seq = reached, dirty = CASE turns WHEN turn_count THEN 0 ELSE dirty END
  WHERE key = which
$$;

CREATE FUNCTION whet_store_words(ids bigint[], texts text[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO message_words (id, words)
  SELECT n.id, n.words::tsvector FROM unnest(ids, texts) AS n (id, words)
  ON CONFLICT (id) DO UPDATE SET words = excluded.words
$$;

CREATE FUNCTION whet_title_session(new_title text, session_id text) RETURNS void LANGUAGE sql AS $$
  UPDATE sessions SET title = new_title WHERE id = session_id AND title = ''
$$;

CREATE FUNCTION whet_freeze_texts(first_hash bytea, first text, second_hash bytea, second text)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO frozen_texts (hash, text) VALUES (first_hash, first), (second_hash, second)
  ON CONFLICT (hash) DO NOTHING
$$;
"""

TEAM_STEPS: dict[str, str] = {
    "team_fence": _FENCE,
    "team_search": _SEARCH,
    "team_queue": _QUEUE,
    "team_streams": _STREAMS,
    "team_titles": _REPLACED,
    "team_processes": _PROCESSES,
    "team_short_titles": _SHORT_TITLES,
    "team_newest": _NEWEST,
    "team_commits": commits.SCHEMA + _STARTS,
    "team_fairness": _FAIRNESS,
    "team_begin": _BEGIN,
    "team_calls": _CALLS,
    "team_scopes": _SCOPES,
    "team_claim": _CLAIM,
}
