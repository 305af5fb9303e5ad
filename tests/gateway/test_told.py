"""A chat hears what was learned while nobody looked: below the next answer, once, whoever's memory it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import reviewed
from tests.gateway.test_telegram import BEN, world
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined
HEARD = "since you left: learned 1, refused 1, waiting for you 1 (/inbox)"


def leave(home: Path, profile: str = "") -> dict[str, LedgerRow]:
    database = StateDatabase.open(home / "state.db", SystemClock())
    rows = database.write_now(lambda db: reviewed.leave(db, profile, f"job-{profile}"))
    database.close()
    return rows


def test_a_chat_hears_once_and_decides(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("One."), ScriptedReply("Two."), ScriptedReply("Three.")]) as w:
        w.telegram.write("hello")
        assert "since you left" not in w.telegram.wait_said("One.")[-1]
        rows = leave(w.gateway.home)
        w.telegram.write("more")
        assert HEARD in w.telegram.wait_said("Two.")[-1]
        w.telegram.write("and more")
        assert "since you left" not in w.telegram.wait_said("Three.")[-1]
        w.telegram.write("/inbox")
        assert reviewed.REFUSED in w.telegram.wait_said(reviewed.WHY)[-1]
        w.telegram.ask(f"/inbox accept {rows['refused'].id}", "in force")
        assert reviewed.REFUSED in (w.gateway.home / "memories" / "MEMORY.md").read_text()


def test_each_hears_of_their_own(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("Hi."), ScriptedReply("Ho."), ScriptedReply("He.")], BEN) as w:
        w.telegram.ask("hi", "Hi.", 8, user=8)
        theirs, owners = leave(w.gateway.home, "ben"), leave(w.gateway.home)
        w.telegram.write("ho", user=8, chat=8)
        assert HEARD in w.telegram.wait_said("Ho.", chat=8)[-1]
        w.telegram.ask(f"/inbox accept {owners['refused'].id}", "there is no change", 8, user=8)
        w.telegram.ask(f"/inbox accept {theirs['refused'].id}", "in force", 8, user=8)
        w.telegram.write("he")
        assert HEARD in w.telegram.wait_said("He.")[-1], "what ben was told is his"
