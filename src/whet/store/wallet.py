"""Limit the spending of model calls.

A call's maximum cost is reserved before it. Afterwards it is settled: the reservation is replaced by the real
cost. A call counts in several sums at once (day, session, person, schedule, goal), which all processes share,
so caps hold in a race. A call that a crash left unsettled counts in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from whet.contract.errors import BudgetReached
from whet.contract.texts import from_json
from whet.store import claims

# The scope of the largest amount by which an answer of a model was above its expected cost.
_OVERRUN = "overrun"
# The amount fades by a tenth with each answer, so that one odd answer does not take room for ever.
_NOTE_OVERRUN = """
INSERT INTO wallet_sums (scope, name, usd, tokens) VALUES (?, ?, ?, ?)
ON CONFLICT (scope, name) DO UPDATE SET
  usd = CASE WHEN excluded.usd > wallet_sums.usd * 0.9 THEN excluded.usd ELSE wallet_sums.usd * 0.9 END,
  tokens = CASE WHEN excluded.tokens > wallet_sums.tokens * 9 / 10 THEN excluded.tokens
    ELSE wallet_sums.tokens * 9 / 10 END
"""
_TABLE_BY_OWNER = {"goal": "goals", "helper": "helpers"}

# The cost of turns, whether or not a cap was set when they ran. Reviews and helpers have sessions of their
# own. Turns that were imported, or copied by a fork, were not paid here.
_STORED = """
SELECT coalesce(sum(json_extract(t.usage, '$.cost_usd')), 0.0),
  coalesce(sum(json_extract(t.usage, '$.total_tokens')), 0)
FROM sessions s JOIN turns t ON t.session = s.key LEFT JOIN forks f ON f.session = s.key
WHERE t.usage <> '' AND (f.turn IS NULL OR t.number > f.turn) AND s.key NOT IN (SELECT session FROM imports)
"""
_STORED_OF = {
    "day": f"{_STORED} AND s.last_active >= ? AND t.started >= ?",
    "person": f"{_STORED} AND s.last_active >= ? AND t.started >= ? AND s.profile = ?",
    "session": f"""
WITH RECURSIVE family (id) AS (SELECT id FROM sessions WHERE id = ? UNION SELECT child.id FROM sessions child
  JOIN family ON child.parent_session_id = family.id WHERE child.kind <> 'chat')
{_STORED} AND s.id IN (SELECT id FROM family)
""",
}
_RAISE_SUM = """
INSERT INTO wallet_sums (scope, name, usd, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (scope, name) DO UPDATE SET
  usd = CASE WHEN excluded.usd > wallet_sums.usd THEN excluded.usd ELSE wallet_sums.usd END,
  tokens = CASE WHEN excluded.tokens > wallet_sums.tokens THEN excluded.tokens ELSE wallet_sums.tokens END
"""

Scope = tuple[str, str]
"""The kind of a cap, and its instance: ("day", "2026-11-22")."""


class Cap(msgspec.Struct, frozen=True):
    """The limits of one scope, 0 for no limit, and the setting that defines them."""

    usd: float = 0.0
    tokens: int = 0
    setting: str = ""


class Doubt(msgspec.Struct, frozen=True):
    """The amount above the expected cost that a server may bill for a call of a model with no counted answer
    yet.

    Calls that began before `since` (ISO time) have ended.
    """

    usd: float
    tokens: int
    since: str


class PlannedCall(msgspec.Struct, frozen=True):
    """A planned call with its maximum cost. `usd` is None if its price is unknown."""

    session: str
    what: str
    model: str
    usd: float | None
    tokens: int
    at: str
    prompt_tokens: int = 0
    doubt: Doubt | None = None


class CallsUnderWay(BudgetReached):
    """The cap has no room now, but may have room once the calls under way have ended."""


class Reservation(msgspec.Struct, frozen=True):
    """A reservation, and new notices about caps that are nearly reached."""

    id: int
    near: tuple[str, ...] = ()


class OpenReservations(msgspec.Struct, frozen=True):
    """The sums of calls that run now or that a kill cut off. `usd` is the sum of the known prices."""

    count: int = 0
    usd: float = 0.0
    tokens: int = 0


def list_scopes(connection: apsw.Connection, session_id: str, day: str) -> list[Scope]:
    """Return the sums that a session's calls count in. Helpers and reviews count as their parents.

    Calls without a session (""), such as a plugin's, count for the day and the owner.
    """
    if not session_id:
        return [("day", day), ("person", f"{day} ")]
    root = _find_root(connection, session_id)
    scopes: list[Scope] = [("day", day), ("session", root), *_helper_scopes(connection, session_id)]
    row = connection.execute("SELECT profile FROM sessions WHERE id = ?", (root,)).fetchone()
    scopes.append(("person", f"{day} {row[0] if row else ''}"))
    row = connection.execute(
        "SELECT schedule FROM schedule_runs WHERE session_id = ? LIMIT 1", (root,)
    ).fetchone()
    if row is not None:
        scopes.append(("schedule", f"{day} {row[0]}"))
    row = connection.execute(
        "SELECT id FROM goals WHERE session = ? AND state = 'running'", (root,)
    ).fetchone()
    return [*scopes, ("goal", row[0])] if row is not None else scopes


def read_own_cap(connection: apsw.Connection, scope: Scope) -> Cap | None:
    """Return the budget of a goal or a helper, or None for a scope with a cap in the settings."""
    name, number = scope
    if name not in _TABLE_BY_OWNER:
        return None
    row = connection.execute(
        f"SELECT budget_usd FROM {_TABLE_BY_OWNER[name]} WHERE id = ?", (number,)
    ).fetchone()
    return Cap(row[0] if row else 0.0, setting="--budget" if name == "goal" else "budget_usd")


def reserve(
    connection: apsw.Connection,
    call: PlannedCall,
    scopes: Sequence[Scope],
    caps: Mapping[str, Cap],
    near: float,
) -> Reservation:
    """Reserve a call's maximum cost in every sum. Raises BudgetReached if a cap has no room for it.

    The maximum is the expected cost and the amount by which answers of its model were above that.
    """
    notices: list[str] = []
    call, doubted = _with_overrun(connection, call)
    for scope in scopes:
        cap = read_own_cap(connection, scope) or caps.get(scope[0], Cap())
        try:
            notices += _check_cap(connection, call, scope, cap, near)
        except BudgetReached as error:
            if not _may_fit_later(connection, call, scope, cap):
                raise
            raise CallsUnderWay(error.message, hint=error.hint) from error
        try:
            _refuse_beyond_cap(connection, doubted, scope, cap)
        except BudgetReached as error:
            raise CallsUnderWay(error.message, hint=error.hint) from error
    claims.register_process(connection)
    connection.execute(
        "INSERT INTO wallet_calls (at, session, what, model, scopes, usd, tokens, owner)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            call.at,
            call.session,
            call.what,
            call.model,
            msgspec.json.encode(scopes).decode(),
            call.usd,
            call.tokens,
            claims.owner_name("call"),
        ),
    )
    number = connection.last_insert_rowid()
    _add(connection, scopes, call.usd or 0.0, call.tokens)
    return Reservation(number, tuple(notices))


def widen(connection: apsw.Connection, number: int, more: PlannedCall, caps: Mapping[str, Cap]) -> None:
    """Reserve more for a call whose answer is longer than expected.

    Raises BudgetReached if a cap has no room for it. The call then keeps its earlier reservation.
    """
    row = connection.execute(
        "SELECT scopes FROM wallet_calls WHERE id = ? AND settled = 0", (number,)
    ).fetchone()
    if row is None:
        return
    scopes = from_json(row[0], list[Scope])
    for scope in scopes:
        cap = read_own_cap(connection, scope) or caps.get(scope[0], Cap())
        _refuse_beyond_cap(connection, more, scope, cap)
    connection.execute(
        "UPDATE wallet_calls SET usd = usd + ?, tokens = tokens + ? WHERE id = ?",
        (more.usd or 0.0, more.tokens, number),
    )
    _add(connection, scopes, more.usd or 0.0, more.tokens)


def settle(
    connection: apsw.Connection,
    number: int,
    usd: float | None,
    tokens: int,
    expected: PlannedCall | None = None,
) -> None:
    """Replace a reservation by the call's real cost, unless that was done before.

    If the answer came whole, `expected` is the expected cost. Later calls of the model reserve the amount by
    which the real cost was above it.
    """
    row = connection.execute(
        "SELECT scopes, usd, tokens FROM wallet_calls WHERE id = ? AND settled = 0", (number,)
    ).fetchone()
    if row is None:
        return
    scopes = from_json(row[0], list[Scope])
    if expected is not None:
        more_usd = max((usd or 0.0) - (expected.usd or 0.0), 0.0)
        connection.execute(
            _NOTE_OVERRUN, (_OVERRUN, expected.model, more_usd, max(tokens - expected.tokens, 0))
        )
    connection.execute(
        "UPDATE wallet_calls SET usd = ?, tokens = ?, settled = 1 WHERE id = ?", (usd, tokens, number)
    )
    _add(connection, scopes, (usd or 0.0) - (row[1] or 0.0), tokens - row[2])


def settle_cancelled_call(
    connection: apsw.Connection, number: int, call: PlannedCall, answer_chars: int
) -> None:
    """Settle a cancelled call: the whole prompt, and a generous estimate of the answer so far
    (`answer_chars`), because more was generated than was shown."""
    if not call.tokens:  # it was not sent, or nothing is known of its size
        settle(connection, number, call.usd, 0)
        return
    tokens = min(call.tokens, call.prompt_tokens + answer_chars)
    tokens = max(tokens, call.prompt_tokens + answer_chars // 3)  # it may have passed what was reserved
    settle_cut_call(
        connection, number, call, None if call.usd is None else call.usd * tokens / call.tokens, tokens
    )


def settle_cut_call(
    connection: apsw.Connection, number: int, call: PlannedCall, usd: float | None, tokens: int
) -> None:
    """Settle a call whose cost the server did not report by the estimates `usd` and `tokens`.

    If answers of the model cost more than expected, the call counts with at least its expected prompt and the
    amount that was reserved for that.
    """
    row = connection.execute(
        "SELECT usd, tokens FROM wallet_calls WHERE id = ? AND settled = 0", (number,)
    ).fetchone()
    if row is None:
        return
    more_usd, more_tokens = (row[0] or 0.0) - (call.usd or 0.0), row[1] - call.tokens
    if usd is not None and more_usd > 0:
        share = call.prompt_tokens / call.tokens if call.tokens else 1.0
        usd = max(usd, (call.usd or 0.0) * share) + more_usd
    if more_tokens > 0:
        tokens = max(tokens, call.prompt_tokens) + more_tokens
    settle(connection, number, usd, tokens)


def read_spending(connection: apsw.Connection, scope: Scope) -> tuple[float, int]:
    """Return the USD, as far as prices are known, and the tokens that are spent or reserved in one scope."""
    row = connection.execute(
        "SELECT usd, tokens FROM wallet_sums WHERE scope = ? AND name = ?", scope
    ).fetchone()
    return (row[0], row[1]) if row else (0.0, 0)


def read_stored_spending(connection: apsw.Connection, scope: Scope, midnight: str) -> tuple[float, int]:
    """Return the USD, as far as known, and tokens of the stored turns of a day, a person's day or a session.

    `midnight` (ISO) is when the day began. Other scopes have (0.0, 0).
    """
    kind, name = scope
    if kind not in _STORED_OF:
        return 0.0, 0
    values = {"day": (midnight, midnight), "person": (midnight, midnight, name.partition(" ")[2])}
    row = connection.execute(_STORED_OF[kind], values.get(kind, (name,))).fetchone()
    return (float(row[0]), int(row[1])) if row else (0.0, 0)


def count_stored(connection: apsw.Connection, scope: Scope, midnight: str) -> None:
    """Raise a scope's sum to the cost of its stored turns, because some may have run before its cap was
    set."""
    usd, tokens = read_stored_spending(connection, scope, midnight)
    if usd or tokens:
        connection.execute(_RAISE_SUM, (*scope, usd, tokens))


def read_open_reservations(connection: apsw.Connection, since: str = "") -> OpenReservations:
    """Return the sums of the reservations since a time (ISO) that were never settled."""
    row = connection.execute(
        "SELECT count(*), coalesce(sum(usd), 0.0), coalesce(sum(tokens), 0) FROM wallet_calls"
        " WHERE settled = 0 AND at >= ?",
        (since,),
    ).fetchone()
    return OpenReservations(*row) if row else OpenReservations()


def _with_overrun(connection: apsw.Connection, call: PlannedCall) -> tuple[PlannedCall, PlannedCall]:
    """Return a call to reserve, and a call to check the caps with.

    The first includes the amount by which the model's answers were above their expected cost. As long as no
    answer of the model was counted, the second includes the amounts that the server may bill for calls under
    way. Calls of ended processes are not under way.
    """
    row = connection.execute(
        "SELECT usd, tokens FROM wallet_sums WHERE scope = ? AND name = ?", (_OVERRUN, call.model)
    ).fetchone()
    if row is not None:
        more = _plus(call, row[0], row[1])
        return more, more
    if call.doubt is None:
        return call, call
    cursor = connection.execute(
        "SELECT owner FROM wallet_calls WHERE settled = 0 AND model = ? AND at >= ?",
        (call.model, call.doubt.since),
    )
    under_way = sum(not claims.is_gone(connection, owner) for (owner,) in cursor.fetchall())
    return call, _plus(call, call.doubt.usd * under_way, call.doubt.tokens * under_way)


def _may_fit_later(connection: apsw.Connection, call: PlannedCall, scope: Scope, cap: Cap) -> bool:
    """Return whether a cap has room for a call if the calls under way cost as much as their model's last
    ones.

    If none of a model's calls has ended, they count as free. Calls of ended processes are not under way.
    """
    if call.doubt is None:
        return False
    spent_usd, whole_tokens = read_spending(connection, scope)
    spent_tokens = float(whole_tokens)
    cursor = connection.execute(
        "SELECT owner, model, scopes, coalesce(usd, 0.0), tokens FROM wallet_calls"
        " WHERE settled = 0 AND at >= ? AND session <> ?",
        (call.doubt.since, call.session),
    )
    count = 0
    for owner, model, scopes, usd, tokens in cursor.fetchall():
        if scope not in from_json(scopes, list[Scope]) or claims.is_gone(connection, owner):
            continue
        usual_usd, usual_tokens = _read_usual_cost(connection, model)
        spent_usd -= max(usd - usual_usd, 0.0)
        spent_tokens -= max(tokens - usual_tokens, 0)
        count += 1
    has_usd = not cap.usd or call.usd is None or spent_usd + call.usd <= cap.usd + 1e-9
    return count > 0 and has_usd and not (cap.tokens and spent_tokens + call.tokens > cap.tokens)


def _read_usual_cost(connection: apsw.Connection, model: str) -> tuple[float, float]:
    row = connection.execute(
        "SELECT coalesce(avg(usd), 0.0), coalesce(avg(tokens), 0.0)"
        " FROM (SELECT usd, tokens FROM wallet_calls"
        " WHERE settled = 1 AND tokens > 0 AND model = ? ORDER BY id DESC LIMIT 20) AS last_calls",
        (model,),
    ).fetchone()
    return (row[0], float(row[1])) if row else (0.0, 0.0)


def _plus(call: PlannedCall, usd: float, tokens: int) -> PlannedCall:
    whole_usd = None if call.usd is None else call.usd + usd
    return msgspec.structs.replace(call, usd=whole_usd, tokens=call.tokens + tokens)


def _helper_scopes(connection: apsw.Connection, session_id: str) -> list[Scope]:
    """Return the scope of a helper's own session if it has a budget of its own."""
    cursor = connection.execute("SELECT id FROM helpers WHERE session = ? AND budget_usd > 0", (session_id,))
    return [("helper", row[0]) for row in cursor.fetchall()]


def _find_root(connection: apsw.Connection, session_id: str) -> str:
    """Return the conversation that a helper or a review works for, or the session itself."""
    root = session_id
    while True:
        row = connection.execute(
            "SELECT parent_session_id, kind FROM sessions WHERE id = ?", (root,)
        ).fetchone()
        if row is None or not row[0] or row[1] == "chat":
            return root
        root = row[0]


def _refuse_beyond_cap(connection: apsw.Connection, call: PlannedCall, scope: Scope, cap: Cap) -> None:
    """Raise BudgetReached if the cap of a scope has no room for a call."""
    usd, tokens = read_spending(connection, scope)
    if cap.usd and call.usd is not None and usd + call.usd > cap.usd + 1e-9:
        raise BudgetReached(
            f"the {scope[0]}'s cap has no room for the next call: ${usd:.2f} of ${cap.usd:.2f} is spent or"
            f" reserved, the call may cost ${call.usd:.2f}",
            hint=cap.setting,
        )
    if cap.tokens and tokens + call.tokens > cap.tokens:
        raise BudgetReached(
            f"the {scope[0]}'s cap has no room for the next call: {tokens:,} of {cap.tokens:,} tokens are"
            f" spent or reserved, the call may take {call.tokens:,}",
            hint=cap.setting,
        )


def _check_cap(
    connection: apsw.Connection, call: PlannedCall, scope: Scope, cap: Cap, near: float
) -> list[str]:
    _refuse_beyond_cap(connection, call, scope, cap)
    usd, tokens = read_spending(connection, scope)
    share = max(usd / cap.usd if cap.usd else 0.0, tokens / cap.tokens if cap.tokens else 0.0)
    # At least the prompt of this call is spent, and the next call needs as much room.
    sent = call.prompt_tokens / call.tokens if call.tokens else 0.0
    is_last = bool(cap.tokens) and tokens + call.prompt_tokens + call.tokens > cap.tokens
    is_last |= bool(cap.usd) and usd + (call.usd or 0.0) * (1 + sent) > cap.usd + 1e-9
    if share + 1e-9 < near and not is_last:
        return []
    connection.execute(
        "INSERT INTO wallet_sums (scope, name, told) VALUES (?, ?, 1)"
        " ON CONFLICT (scope, name) DO UPDATE SET told = 1 WHERE wallet_sums.told = 0",
        scope,
    )
    if not connection.changes():
        return []
    of = f"${usd:.2f} of ${cap.usd:.2f}" if cap.usd else f"{tokens:,} of {cap.tokens:,} tokens"
    more = ", the next call may have no room" if is_last else ""
    return [f"the {scope[0]}'s cap is near: {of} {'is' if cap.usd else 'are'} spent{more} ({cap.setting})"]


def _add(connection: apsw.Connection, scopes: Sequence[Scope], usd: float, tokens: int) -> None:
    connection.executemany(
        "INSERT INTO wallet_sums (scope, name, usd, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (scope, name)"
        " DO UPDATE SET usd = wallet_sums.usd + excluded.usd, tokens = wallet_sums.tokens + excluded.tokens",
        [(*scope, usd, tokens) for scope in scopes],
    )
