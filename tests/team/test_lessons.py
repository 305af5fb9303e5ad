"""Notes and skills of a team: rows of its database, with copies in the home of every worker."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.lessons.world import Run, User, World, add, create
from click.testing import CliRunner

from tests.team.cluster import Cluster
from whet.cli.store import store
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.origin import Origin
from whet.memory import notes
from whet.memory.reader import MemoryReader
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.memory.service import LearningService
from whet.store import ledger
from whet.store.database import StateDatabase
from whet.store.team import TeamDatabase

ROOT = Path(__file__).parents[2]
HAND = Origin("user")
SKILL = "---\nname: deploy\ndescription: How we deploy.\n---\nRun make ship.\n"
MAIN, SCRIPT = "skills/deploy/SKILL.md", "skills/deploy/scripts/ship.sh"
NOTES = "memories/MEMORY.md"


def home(db: StateDatabase, folder: Path, profile: str = "") -> LearningService:
    settings = (MemorySettings(), ReviewSettings())
    return LearningService(MemoryReader(db, SystemClock(), folder, settings, profile=profile))


def begins(learning: LearningService) -> str:
    """Begin a session there and give what it reads."""
    return asyncio.run(learning.reader.build_prompt_part()).text


def said(learning: LearningService) -> list[str]:
    (state,) = [note for note in asyncio.run(learning.reader.read_notes()) if note.target == "memory"]
    assert not state.trouble
    return [entry.text for entry in notes.parse_entries(state.text)]


def change(learning: LearningService, request: MemoryRequest | SkillRequest) -> WriteOutcome:
    if isinstance(request, SkillRequest):
        return asyncio.run(learning.submit(request, HAND))
    return asyncio.run(learning.submit(request, HAND))


def remember(learning: LearningService, text: str) -> None:
    outcome = change(learning, MemoryRequest("add", content=text))
    assert outcome.ok, outcome.text


def write(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def rows(learning: LearningService) -> list[ledger.LedgerRow]:
    return learning.database.read_now(lambda db: ledger.select(db, profile=learning.profile))[::-1]


@pytest.mark.slow
def test_what_one_home_learns_every_other_one_reads(db: TeamDatabase, tmp_path: Path) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    remember(a, "Tests run with tox.")
    assert change(a, create("deploy", "How we deploy.", "Run make ship.")).ok
    script = SkillRequest("write_file", "deploy", file_path="scripts/ship.sh", file_content="make ship\n")
    assert change(a, script).ok
    assert "Tests run with tox." in begins(b) and "deploy: How we deploy." in begins(b)
    assert (tmp_path / "b" / SCRIPT).read_text() == "make ship\n"
    assert change(b, MemoryRequest("replace", content="Tests run with nox.", old_text="tox")).ok
    assert change(b, SkillRequest("delete", "deploy")).ok
    assert said(a) == ["Tests run with nox."]
    assert "deploy:" not in begins(a) and not (tmp_path / "a/skills/deploy").exists()


@pytest.mark.slow
def test_what_a_session_shows_is_learned_by_the_same_gate(db: TeamDatabase, tmp_path: Path) -> None:
    """The transcript, the calls that ran when a file was written, and those that name it are read there."""
    world = World(tmp_path / "own")
    world.close()
    world.database, world.learning = db, home(db, tmp_path / "a")
    (tmp_path / "app.ini").write_text("port = 8443\n")
    look = Run("read_file", {"path": str(tmp_path / "app.ini")}, "1|port = 8443")
    fetched = Run("terminal", f"curl -so {tmp_path}/b.ini https://x.example", "port = 9443")
    session = asyncio.run(world.session([User("Look at the port."), look, fetched]))
    wishes = [add("Port.", "port = 8443"), add("Port.", "port = 9443"), add("Port.", "port = 7443")]
    states = [state for _, state in asyncio.run(world.review(session, wishes))]
    assert states == ["active", "quarantined", "refused"]
    assert "port = 8443" in begins(world.learning)


@pytest.mark.slow
def test_what_one_person_learns_nobody_else_reads(db: TeamDatabase, tmp_path: Path) -> None:
    for text in ("a", "b"):
        ada = home(db, tmp_path / text / "people/ada", "ada")
        bob = home(db, tmp_path / text / "people/bob", "bob")
        remember(ada, f"Ada's note {text}.")
        remember(bob, f"Bob's note {text}.")
        assert change(ada, create(f"deploy-{text}", "Ada's way.", "Run make ship.")).ok
    assert begins(ada).count("Ada's note") == 2 and "Bob" not in begins(ada)
    assert begins(bob).count("Bob's note") == 2 and "Ada" not in begins(bob)
    assert not (tmp_path / "b/people/bob/skills").exists() and not (tmp_path / "b/memories").exists()


@pytest.mark.slow
def test_two_workers_at_once_lose_no_change(db: TeamDatabase, url: str, tmp_path: Path) -> None:
    with closing(TeamDatabase.open_url(url)) as other:
        desks = [home(db, tmp_path / "a"), home(other, tmp_path / "b")]
        assert change(desks[0], create("deploy", "How we deploy.", "Run make ship.")).ok

        def work(place: int) -> None:
            for number in range(8):
                remember(desks[place], f"Fact {number} of {place}.")
                write(
                    tmp_path / "ab"[place],
                    f"skills/by-{place}-{number}/SKILL.md",
                    SKILL.replace("deploy", f"by-{place}-{number}"),
                )
                begins(desks[place])

        with ThreadPoolExecutor(2) as pool:
            assert [*pool.map(work, (0, 1))] == [None, None]
        for place in (0, 1):
            begins(desks[place])
        assert sorted(said(desks[0])) == [f"Fact {n} of {number}." for n in range(8) for number in (0, 1)]
        assert said(desks[0]) == said(desks[1])
        assert {path.name for path in (tmp_path / "a/skills").iterdir()} == {
            path.name for path in (tmp_path / "b/skills").iterdir()
        }
        assert len([row for row in rows(desks[0]) if row.kind == "memory"]) == 16


@pytest.mark.slow
def test_edits_by_hand_in_two_homes_are_both_kept(db: TeamDatabase, tmp_path: Path) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    for text in ("One.", "Two.", "Three."):
        remember(a, text)
    begins(b)
    write(tmp_path / "a", NOTES, "- One, by a.\n- Two.\n- Three.\n")
    write(tmp_path / "b", NOTES, "- One, by b.\n- Two.\n- Four, by b.\n")
    assert said(a) == ["One, by a.", "Two.", "Three."]
    assert said(b) == ["One, by b.", "Two.", "Four, by b.", "One, by a."]
    assert said(a) == said(b)
    assert (tmp_path / "a" / NOTES).read_text() == (tmp_path / "b" / NOTES).read_text()
    assert {row.origin.execution_context for row in rows(a)[3:]} == {"edited by hand"}


@pytest.mark.slow
def test_a_skills_edit_by_hand_is_everybodys_in_the_next_session(db: TeamDatabase, tmp_path: Path) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    write(tmp_path / "a", MAIN, SKILL)
    write(tmp_path / "a", SCRIPT, "make ship\n")
    begins(a)
    assert "deploy: How we deploy." in begins(b)
    write(tmp_path / "a", MAIN, SKILL.replace("How we", "How all"))
    write(tmp_path / "b", MAIN, SKILL.replace("ship", "boat"))
    begins(a)
    assert "How we deploy" in begins(b) and "boat" in (tmp_path / "b" / MAIN).read_text()
    first, second = rows(a)
    assert (first.action, second.action) == (
        "hand_edit",
        "hand_edit",
    ) and f"change {first.id}" in second.reason
    asyncio.run(a.undo(second.id, HAND))
    assert "How all deploy." in begins(b)
    shutil.rmtree(tmp_path / "b/skills/deploy")
    begins(b)
    assert "deploy:" not in begins(a) and not (tmp_path / "a/skills/deploy").exists()


@pytest.mark.slow
def test_a_home_that_joins_brings_its_own_and_takes_what_is_there(db: TeamDatabase, tmp_path: Path) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    remember(a, "The team's.")
    write(tmp_path / "a", MAIN, SKILL)
    begins(a)
    write(tmp_path / "b", NOTES, "# Memory\n\n- The laptop's.\n")
    write(tmp_path / "b", "skills/own/SKILL.md", SKILL.replace("deploy", "own"))
    assert "own: How we own." in begins(b) and "deploy:" in begins(b)
    assert sorted(said(a)) == sorted(said(b)) == ["The laptop's.", "The team's."]
    assert "own: How we own." in begins(a)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["list", "folder", "broken"])
def test_a_home_that_lost_what_it_saw_takes_nothing_away(db: TeamDatabase, tmp_path: Path, lost: str) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    remember(a, "One.")
    assert change(a, create("deploy", "How we deploy.", "Run make ship.")).ok
    begins(b)
    for text in ("memories", "skills"):
        if lost == "folder":
            shutil.rmtree(tmp_path / "b" / text)
        elif lost == "list":
            (tmp_path / "b" / text / ".seen.json").unlink()
        else:
            (tmp_path / "b" / text / ".seen.json").write_text('{"memories/MEMORY.md": [[')
    remember(a, "Two.")
    assert change(a, SkillRequest("patch", "deploy", old_string="ship", new_string="boat")).ok
    assert said(b) == ["One.", "Two."]
    assert "boat" in (begins(b), (tmp_path / "b" / MAIN).read_text())[1]
    assert "boat" in (begins(a), (tmp_path / "a" / MAIN).read_text())[1]
    assert said(a) == ["One.", "Two."]


@pytest.mark.slow
def test_a_home_that_moves_to_a_team_and_back_keeps_its_edits(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()

    def copy(way: str) -> None:
        done = CliRunner().invoke(store, ["copy", way, url], obj=Home(folder))
        assert done.exit_code == 0, done.output

    for person in ("", "ada"):
        path = folder / "people" / person if person else folder
        with closing(StateDatabase.open(Home(folder).database, SystemClock())) as own:
            learning = home(own, path, person)
            remember(learning, "One.")
            remember(learning, "Two.")
            assert change(learning, create("deploy", "How we deploy.", "Run make ship.")).ok
        write(path, NOTES, "- One.\n- Two, by hand.\n")
    copy("--to")
    for person in ("", "ada"):
        path = folder / "people" / person if person else folder
        with closing(TeamDatabase.open_url(url)) as team:
            learning, other = home(team, path, person), home(team, tmp_path / f"other{person}", person)
            assert said(learning) == ["One.", "Two, by hand."], "an edit from before the copy is one"
            remember(other, "Three.")
            assert change(other, SkillRequest("patch", "deploy", old_string="ship", new_string="boat")).ok
            begins(learning)
            remember(other, "Four.")
        write(path, MAIN, (path / MAIN).read_text().replace("Run", "Always run"))
    Home(folder).database.unlink()
    copy("--from")
    for person in ("", "ada"):
        path = folder / "people" / person if person else folder
        with closing(StateDatabase.open(Home(folder).database, SystemClock())) as own:
            learning = home(own, path, person)
            assert said(learning) == ["One.", "Two, by hand.", "Three.", "Four."]
            asyncio.run(learning.skills.view("deploy", "", HAND))
            assert "Always run make boat." in (path / MAIN).read_text()
            made = [(row.action, row.after) for row in rows(learning) if row.kind == "memory"]
            assert len(made) == len({*made}) == 5


def killed_at(url: str, folder: Path, at: int) -> int:
    """Let a home learn until it is killed at that step; gives how many steps there were where it lived."""
    command = [sys.executable, "-m", "tests.team.lessons_driver", url, str(folder), str(at)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2_000:]
    return int(done.stdout or 0)


def killed_everywhere(cluster: Cluster, folder: Path, every: int) -> int:
    """Kill a home at its steps, go on in another one, and see that both are in step and nothing came back."""
    at, count = 1, 0
    while True:
        url = cluster.database()
        steps = killed_at(url, folder / f"a{at}", at)
        database = TeamDatabase.open_url(url)
        a, b = home(database, folder / f"a{at}"), home(database, folder / f"b{at}")
        for gone in {"One.", "Uno."} & {*said(b)}:
            assert change(b, MemoryRequest("remove", old_text=gone)).ok
        remember(b, "From b.")
        begins(a)
        begins(b)
        kept = sorted({*said(a)} - {"One.", "Uno."})
        assert said(a) == said(b) and kept in (["From b."], ["By hand.", "From b."]), at
        assert len(said(a)) == len({*said(a)}), at
        made = [(row.kind, row.action, row.before, row.after) for row in rows(a)]
        assert len(made) == len({*made}), (at, made)
        for path in (NOTES, MAIN):
            there = [(folder / f"{text}{at}" / path) for text in "ab"]
            assert len({one.read_bytes() if one.exists() else None for one in there}) == 1, (at, path)
        assert not a.reader.seen.list_pending_paths() and not b.reader.seen.list_pending_paths()
        database.close()
        cluster.drop(url)
        count += 1
        if steps:
            assert kept == ["By hand.", "From b."] and "boat" in (folder / f"b{at}" / MAIN).read_text()
            return count
        at += every


@pytest.mark.slow
def test_a_home_that_is_killed_between_a_row_and_its_file_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    assert killed_everywhere(cluster, tmp_path, 7) > 5


@pytest.mark.soak
def test_a_home_that_is_killed_anywhere_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    assert killed_everywhere(cluster, tmp_path, 1) > 40
