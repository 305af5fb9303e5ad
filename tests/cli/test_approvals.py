"""`whet approvals`: what was allowed for good, listed and taken back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import invoke
from tests.support import FixedClock
from whet.store import grants
from whet.store.database import StateDatabase


def test_a_grant_is_listed_and_revoked(home: Path, clock: FixedClock) -> None:
    assert "Nothing was allowed" in invoke("approvals", "list").output
    assert not (home / "state.db").exists()
    home.mkdir(exist_ok=True)
    database = StateDatabase.open(home / "state.db", clock)
    database.write_now(lambda db: grants.add(db, "terminal", "git commit *", "/w", "2026-11-21T09:00:00Z"))
    database.close()
    for arguments in ([], ["list"]):
        shown = invoke("approvals", *arguments).output
        assert "git commit *" in shown and "take one back: whet approvals revoke ID" in shown
    row = json.loads(invoke("approvals", "list", "--json").output)["grants"][0]
    assert row["tool"] == "terminal"
    assert invoke("approvals", "revoke", str(row["id"])).exit_code == 0
    assert json.loads(invoke("approvals", "list", "--json").output) == {"grants": []}
    again = invoke("approvals", "revoke", str(row["id"]))
    assert again.exception is not None and "no grant" in str(again.exception)
