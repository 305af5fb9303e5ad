"""The tables of confirmations.db, and their numbered steps.

`user_version` is the number of the last step. A file from a newer version is refused before anything is
written to it.
"""

from __future__ import annotations

_REQUESTS = """
CREATE TABLE requests (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    action TEXT NOT NULL, action_key TEXT NOT NULL, description TEXT NOT NULL, details TEXT NOT NULL,
    requester TEXT NOT NULL, session_key TEXT NOT NULL, principal TEXT NOT NULL,
    status TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    resolved_at REAL, resolved_by TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    digest TEXT NOT NULL, plan TEXT NOT NULL, policy_version TEXT NOT NULL,
    is_high_risk INTEGER NOT NULL, accepts_edits INTEGER NOT NULL,
    original TEXT NOT NULL DEFAULT '', edited_by TEXT NOT NULL DEFAULT '',
    callback_url TEXT NOT NULL DEFAULT '', escalates_at REAL, escalated_at REAL,
    consumed_at REAL, consumed_by TEXT NOT NULL DEFAULT '', consume_key TEXT NOT NULL DEFAULT '',
    executed_at REAL, execution TEXT NOT NULL DEFAULT '', execution_note TEXT NOT NULL DEFAULT '',
    rate_number INTEGER
) STRICT;
CREATE INDEX pending_by_deadline ON requests (expires_at) WHERE status = 'pending';
CREATE INDEX pending_to_escalate ON requests (escalates_at)
    WHERE status = 'pending' AND escalates_at IS NOT NULL AND escalated_at IS NULL;
CREATE INDEX by_rate ON requests (principal, action_key, rate_number) WHERE rate_number IS NOT NULL;

CREATE TABLE votes (
    request_id TEXT NOT NULL, principal TEXT NOT NULL, verdict TEXT NOT NULL, at REAL NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (request_id, principal)
) STRICT, WITHOUT ROWID;
CREATE TABLE views (
    request_id TEXT NOT NULL, principal TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (request_id, principal)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, request_id TEXT NOT NULL,
    principal TEXT NOT NULL, owner TEXT NOT NULL, data TEXT NOT NULL, hash BLOB NOT NULL
) STRICT;
CREATE INDEX events_by_request ON events (request_id) WHERE request_id != '';
CREATE TABLE checkpoints (
    size INTEGER PRIMARY KEY, head TEXT NOT NULL, at REAL NOT NULL, key_id TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, role TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL, revoked_at REAL
) STRICT;
CREATE TABLE whitelist (
    id INTEGER PRIMARY KEY, action_key TEXT NOT NULL, principal TEXT NOT NULL, session_key TEXT NOT NULL,
    created_by TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, revoked_at REAL
) STRICT;
CREATE INDEX whitelisted ON whitelist (action_key, expires_at) WHERE revoked_at IS NULL;
CREATE TABLE idempotency (
    principal TEXT NOT NULL, key TEXT NOT NULL, body_hash BLOB NOT NULL, request_id TEXT NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (at);

-- What people are to be told. Written with what causes it; leased and done by the notifier. An id is never
-- used again: deliveries outlive the item that they came from.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, request_id TEXT NOT NULL, at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, run_after REAL NOT NULL DEFAULT 0,
    leased_until REAL NOT NULL DEFAULT 0, leased_by TEXT NOT NULL DEFAULT ''
) STRICT;
-- How far each channel got with an outbox item; `ref` is what the channel needs to edit its message (JSON).
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, outbox_id INTEGER NOT NULL, kind TEXT NOT NULL, request_id TEXT NOT NULL,
    channel TEXT NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    run_after REAL NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', ref TEXT NOT NULL DEFAULT '',
    updated_at REAL NOT NULL, UNIQUE (outbox_id, channel)
) STRICT;
CREATE INDEX deliveries_by_request ON deliveries (request_id);
-- Webhooks to the address that a submission named.
CREATE TABLE callbacks (
    id INTEGER PRIMARY KEY, message_id TEXT NOT NULL, request_id TEXT NOT NULL, url TEXT NOT NULL,
    body TEXT NOT NULL, created_at REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    run_after REAL NOT NULL, status TEXT NOT NULL DEFAULT 'waiting', error TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX callbacks_due ON callbacks (run_after) WHERE status = 'waiting';
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

_PEOPLE = """
CREATE INDEX deliveries_due ON deliveries (channel, run_after) WHERE status IN ('queued', 'failed');
-- Who is signed in on the page. `id_hash` is the hash of the cookie's random number.
CREATE TABLE web_sessions (
    id_hash TEXT PRIMARY KEY, account_key TEXT NOT NULL, csrf TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

# The audit log is the outbox: for its events up to `told_to`, deliveries have been queued.
_NEWS = """
INSERT INTO facts SELECT 'told_to', coalesce(
    (SELECT min(e.id) - 1 FROM outbox o JOIN events e ON e.request_id = o.request_id AND e.kind = o.kind),
    (SELECT max(id) FROM events), 0);
UPDATE deliveries SET outbox_id = -outbox_id;
DROP TABLE outbox;
ALTER TABLE deliveries RENAME COLUMN outbox_id TO event_id;
"""

# Secrets of second factors are encrypted with a key derived from the service's key file. A code's time step
# is used once; wrong codes in a row are counted.
_FACTORS = """
CREATE TABLE second_factors (
    name TEXT PRIMARY KEY, sealed BLOB NOT NULL, created_at REAL NOT NULL, last_step INTEGER NOT NULL,
    failures INTEGER NOT NULL, failed_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

# The contents of every table, as a sum over its rows, and the service's signature over all sums and the log's
# end. A later step that changes rows of other tables must update the sums.
_SEALS = """
CREATE TABLE IF NOT EXISTS seals (
    name TEXT PRIMARY KEY, rows INTEGER NOT NULL, sum BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seal (
    one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER NOT NULL, head BLOB NOT NULL, state BLOB NOT NULL,
    key_id TEXT NOT NULL, signature BLOB NOT NULL
) STRICT;
"""

# Public keys of people's passkeys. Revoked ones stay, to verify earlier signatures.
_PASSKEYS = """
CREATE TABLE IF NOT EXISTS passkeys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, public_key TEXT NOT NULL, host TEXT NOT NULL,
    sign_count INTEGER NOT NULL, created_at REAL NOT NULL, revoked_at REAL
) STRICT, WITHOUT ROWID;
"""

# Delegations, members of other systems' groups, and people who log in with a provider.
_STAND_INS = """
CREATE TABLE IF NOT EXISTS delegations (
    id INTEGER PRIMARY KEY, giver TEXT NOT NULL, stand_in TEXT NOT NULL, until REAL NOT NULL,
    created_by TEXT NOT NULL, created_at REAL NOT NULL, ended_at REAL
) STRICT;
CREATE TABLE IF NOT EXISTS members (
    grp TEXT NOT NULL, name TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (grp, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS people (
    name TEXT PRIMARY KEY, issuer TEXT NOT NULL, subject TEXT NOT NULL, role TEXT NOT NULL,
    signed_in_at REAL NOT NULL, until REAL NOT NULL, UNIQUE (issuer, subject)
) STRICT, WITHOUT ROWID;
"""

# Sums newer than those in `seals`: an unsigned commit writes one row instead of one per table.
_NEWER = """
ALTER TABLE seal ADD COLUMN newer BLOB;
"""

# Devices with a push subscription, and when each acknowledged a request. Whitelist entries that an approver
# granted with an approval have limits.
_DEVICES = """
CREATE TABLE IF NOT EXISTS devices (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, account_key TEXT NOT NULL, label TEXT NOT NULL,
    endpoint TEXT NOT NULL UNIQUE, public_key TEXT NOT NULL, secret TEXT NOT NULL,
    quiet TEXT NOT NULL, timezone TEXT NOT NULL, created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receipts (
    request_id TEXT NOT NULL, channel TEXT NOT NULL, delivered_at REAL NOT NULL, seen_at REAL,
    PRIMARY KEY (request_id, channel)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS whitelist_limits (
    entry_id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, kind TEXT NOT NULL, host TEXT NOT NULL,
    max_uses INTEGER NOT NULL, uses INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS expired_requests ON requests (resolved_at) WHERE status = 'expired';
"""

STEPS: tuple[str, ...] = (
    _REQUESTS, _PEOPLE, _NEWS, _FACTORS, _SEALS, _PASSKEYS, _STAND_INS, _NEWER, _DEVICES,
)  # fmt: skip
