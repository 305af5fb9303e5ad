"""`whet approvals`: what was allowed for good, listed and taken back."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.support import FixedClock
from whet.cli.approvals import approvals
from whet.config.paths import Home
from whet.store import grants
from whet.store.database import StateDatabase


def test_a_grant_is_listed_and_revoked(tmp_path: Path, clock: FixedClock) -> None:
    home, runner = Home(tmp_path / "home"), CliRunner()
    assert "Nothing was allowed" in runner.invoke(approvals, ["list"], obj=home).output
    assert not home.database.exists()
    home.ensure()
    database = StateDatabase.open(home.database, clock)
    database.write_now(lambda db: grants.add(db, "terminal", "git commit *", "/w", "2026-11-21T09:00:00Z"))
    database.close()
    for arguments in ([], ["list"]):
        shown = runner.invoke(approvals, arguments, obj=home).output
        assert "git commit *" in shown and "take one back: whet approvals revoke ID" in shown
    row = json.loads(runner.invoke(approvals, ["list", "--json"], obj=home).output)["grants"][0]
    assert row["tool"] == "terminal"
    assert runner.invoke(approvals, ["revoke", str(row["id"])], obj=home).exit_code == 0
    assert json.loads(runner.invoke(approvals, ["list", "--json"], obj=home).output) == {"grants": []}
    again = runner.invoke(approvals, ["revoke", str(row["id"])], obj=home)
    assert again.exception is not None and "no grant" in str(again.exception)
