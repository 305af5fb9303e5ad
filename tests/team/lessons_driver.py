"""A worker's home that learns and is edited by hand, killed at one of its durable steps: database writes and
file moves. Run as: python -m tests.team.lessons_driver URL FOLDER AT; it prints how many steps there were."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.lessons.world import create

from tests.crash.learning_driver import EVENTS, Killer, KillingWrites
from tests.team.test_lessons import MAIN, NOTES, begins, change, home, remember, write
from whet.memory.requests import MemoryRequest
from whet.store.team import TeamDatabase


class KillingDatabase(KillingWrites, TeamDatabase):
    """A team's database whose process is killed at a write."""


def learn(url: str, folder: Path, killer: Killer) -> None:
    database = KillingDatabase.open_url(url)
    assert isinstance(database, KillingDatabase)
    database.killer = killer
    learning = home(database, folder)
    begins(learning)
    killer.armed = True
    remember(learning, "One.")
    change(learning, create("deploy", "How we deploy.", "Run make ship."))
    write(folder, NOTES, (folder / NOTES).read_text() + "- By hand.\n")
    begins(learning)
    change(learning, MemoryRequest("replace", content="Uno.", old_text="One."))
    write(folder, MAIN, (folder / MAIN).read_text().replace("ship", "boat"))
    begins(learning)
    killer.armed = False
    database.close()


if __name__ == "__main__":
    killer = Killer(int(sys.argv[3]))
    folder = sys.argv[2]
    sys.addaudithook(
        lambda event, args: killer.step() if event in EVENTS and folder in str(args[0]) else None
    )
    learn(sys.argv[1], Path(folder), killer)
    print(killer.count)
