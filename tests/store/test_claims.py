"""Who holds a session: whether an owner lives, as far as that can be told, and what its claim is worth."""

from __future__ import annotations

import os

import pytest

from tests.store.support import ONLY_SQLITE, on
from whet.clock import iso
from whet.contract.errors import StoreBusy
from whet.store import claims
from whet.store.claims import LEASE_S, Holder

_NOBODY = 999_999_999


def held(db) -> tuple[str, str] | None:
    return db.read_now(lambda c: c.execute("SELECT token, renewed FROM claims WHERE session = 1").fetchone())


def test_a_process_has_one_name_in_which_only_the_token_differs():
    assert claims.owner_name("a") == claims.owner_name("a") != claims.owner_name("b")
    host, pid, born, nonce, token = claims.owner_name("a").split(" ")
    assert (host, pid, born, token) == (
        os.uname().nodename,
        str(os.getpid()),
        claims.read_process_birth(os.getpid()),
        "a",
    )
    assert len(nonce) == 24 and claims.read_process_birth(_NOBODY) == ""


@ONLY_SQLITE
def test_an_owner_is_gone_only_where_that_is_sure(db):
    host, pid, born, nonce, token = claims.owner_name("a").split(" ")
    lives = (
        f"{host} {pid} {born} {nonce} {token}",
        f"{host} {pid} {born} {token}",
        f"{host} {pid} - {token}",
        f"elsewhere {_NOBODY} {born} {token}",
        f"{host} {_NOBODY} {born}",
        f"{host} {_NOBODY} {born} {nonce} {token} more",
        f"{host} x {born} {token}",
        "",
    )
    gone = (
        f"{host} {_NOBODY} {born} {token}",
        f"{host} {_NOBODY} - {nonce} {token}",
        f"{host} {pid} x {token}",
    )
    assert [on(db, claims.is_gone, owner) for owner in lives] == [False] * len(lives)
    assert [on(db, claims.is_gone, owner) for owner in gone] == [True] * len(gone)


def claim(connection, key, session_id, holder, now):
    claims.begin_claim(connection, key, session_id, holder, now)()


def test_one_holder_has_a_session_until_it_gives_it_free_or_is_gone(db, clock):
    holder, two, now = Holder("one"), Holder("two"), clock.now()
    on(db, claim, 1, "s", holder, now)
    on(db, claim, 1, "s", holder, now)
    on(db, claims.refuse_if_held, 1, "s", holder)
    on(db, claims.refuse_if_held, 2, "beside it", two)
    for refused in (
        lambda: on(db, claim, 1, "s", two, now),
        lambda: on(db, claims.refuse_if_held, 1, "s"),
        lambda: on(db, claims.renew, 1, two, now),
        lambda: on(db, claims.release, 1, two),
    ):
        with pytest.raises(StoreBusy):
            refused()
    clock.advance(9)
    on(db, claims.renew, 1, holder, clock.now())
    assert held(db) == ("one", "" if db.is_team else iso(clock.now())), "a team's keeper renews it"
    on(db, claims.release, 1, holder)
    assert held(db) is None
    on(db, claim, 1, "s", holder, now)
    claims.drop_holder(holder)
    assert claims.live_tokens().count("one") == 0 and "two" in claims.live_tokens()
    on(db, claim, 1, "s", two, now)
    with pytest.raises(StoreBusy, match="taken over this session"):
        on(db, claims.release, 1, holder)


@ONLY_SQLITE
@pytest.mark.parametrize(
    ("host", "pid", "born", "late_s", "is_held"),
    [
        ("here", "mine", "mine", 0, False),
        ("here", "mine", "another", 0, False),
        ("here", "mine", "", 0, True),
        ("here", "mine", "", LEASE_S, False),
        ("here", "theirs", "theirs", 2 * LEASE_S, True),
        ("here", "theirs", "another", 0, False),
        ("here", _NOBODY, "", 0, False),
        ("elsewhere", _NOBODY, "", LEASE_S - 0.001, True),
        ("elsewhere", _NOBODY, "", LEASE_S, False),
        ("elsewhere", "mine", "mine", LEASE_S, False),
        ("elsewhere", _NOBODY, "", None, True),
    ],
)
def test_a_claim_holds_while_its_owner_lives_and_where_that_is_not_known_for_a_minute(
    db, clock, host, pid, born, late_s, is_held
):
    """`late_s`: how long ago it was renewed; None: nobody says what time it is."""
    pids = {"mine": os.getpid(), "theirs": os.getppid()}
    pid, born = pids.get(pid, pid), claims.read_process_birth(pids[born]) if born in pids else born
    row = (os.uname().nodename if host == "here" else host, pid, born, iso(clock.now()))
    columns = "session, token, host, pid, born, renewed"
    db.write_now(lambda c: c.execute(f"INSERT INTO claims ({columns}) VALUES (1, 'gone', ?, ?, ?, ?)", row))
    clock.advance(late_s or 0)
    now = None if late_s is None else clock.now()
    if is_held:
        with pytest.raises(StoreBusy, match=f"session s is in use by process {pid}"):
            on(db, claims.refuse_if_held, 1, "s", Holder("me"), now)
    else:
        on(db, claims.refuse_if_held, 1, "s", Holder("me"), now)
