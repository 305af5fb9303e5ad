"""What a team's home saw of its files, kept beside them: here on a store of this machine's own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import FixedClock
from whet.config.paths import Home
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.origin import Origin
from whet.memory.known_copies import KnownCopies, copy_seen_files
from whet.memory.reader import MemoryReader
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.memory.service import LearningService
from whet.store import learned
from whet.store.database import StateDatabase
from whet.store.learned import FileState
from whet.store.ledger import hash_text

HAND = Origin("user")
NOTES, MAIN = "memories/MEMORY.md", "skills/deploy/SKILL.md"
SKILL = "---\nname: deploy\ndescription: How we deploy.\n---\nRun make ship.\n"
ONE, TWO, THREE = hash_text(b"one"), hash_text(b"two"), hash_text(b"three")


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    database = StateDatabase.open(tmp_path / "team.db", clock)
    yield database
    database.close()


@pytest.fixture
def copies(db: StateDatabase, tmp_path: Path) -> KnownCopies:
    return KnownCopies(db, "", tmp_path / "a")


def want(db: StateDatabase, path: str, content: bytes, profile: str = "") -> None:
    def work(connection) -> None:
        learned.set_expected_hash(
            connection, profile, path, learned.store_text(connection, content) if content else ""
        )

    db.write_now(work)


def test_a_text_is_known_once_it_was_seen_and_its_folder_keeps_the_list(
    db: StateDatabase, copies: KnownCopies, tmp_path: Path
) -> None:
    want(db, NOTES, b"two")
    assert copies.get_state(NOTES, ONE) == FileState(NOTES, TWO, "")
    copies.record_seen(NOTES, b"one")
    assert copies.get_state(NOTES, ONE) == FileState(NOTES, TWO, ONE)
    assert copies.read_base(copies.get_state(NOTES, ONE)) == b"one"
    assert [path.name for path in (tmp_path / "a/memories").iterdir()] == [".seen.json"]
    assert KnownCopies(db, "ada", tmp_path / "b").get_state(NOTES, ONE) == FileState(NOTES, "", "")
    copies.record_seen(NOTES, None)
    assert (
        copies.get_state(NOTES, ONE) == FileState(NOTES, TWO, "")
        and copies.read_base(copies.get_state(NOTES)) == b""
    )


def test_of_a_file_that_is_being_written_both_texts_are_known(db: StateDatabase, copies: KnownCopies) -> None:
    want(db, NOTES, b"three")
    copies.record_seen(NOTES, b"one")
    copies.record_intent(NOTES, b"two")
    assert (
        copies.get_state(NOTES, TWO).written == TWO
        and copies.read_base(copies.get_state(NOTES, TWO)) == b"two"
    )
    assert copies.get_state(NOTES, ONE).written == copies.get_state(NOTES, THREE).written == ONE
    copies.record_intent(NOTES, b"three")
    assert copies.get_state(NOTES, THREE) == FileState(NOTES, THREE, ONE), "what should be there is no edit"
    assert copies.list_pending_paths() == [NOTES], "it was not seen there yet"
    copies.record_intent("memories/USER.md", b"one")
    assert copies.get_state("memories/USER.md", "").written == "", "before it, there was none"
    copies.record_seen("memories/USER.md", b"two")
    copies.record_intent("memories/USER.md", None)
    assert copies.get_state("memories/USER.md").written == TWO


def test_what_waits_is_what_was_not_seen_as_it_should_be(db: StateDatabase, copies: KnownCopies) -> None:
    for path, content in ((NOTES, b"one"), (MAIN, b"two"), ("skills/old/SKILL.md", b"")):
        want(db, path, content)
    assert copies.list_pending_paths() == [NOTES, MAIN]
    copies.record_seen(NOTES, b"one")
    copies.record_seen(MAIN, b"one")
    copies.record_seen("skills/gone/SKILL.md", b"one")
    assert sorted(copies.list_pending_paths()) == [MAIN, "skills/gone/SKILL.md"]
    copies.record_seen(MAIN, b"two")
    copies.record_seen("skills/gone/SKILL.md", None)
    assert copies.list_pending_paths() == []


def test_a_skill_changed_by_hand_is_noticed_a_link_and_an_odd_name_are_not(
    copies: KnownCopies, tmp_path: Path
) -> None:
    skills = tmp_path / "a/skills"
    for name in ("ship", "deploy", "Not A Name"):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(SKILL)
    (skills / "away").symlink_to(skills / "ship")
    (skills / "note.md").write_text("no folder")
    assert copies.list_changed_skills() == ["deploy", "ship"]
    for name in ("ship", "deploy"):
        copies.record_seen(f"skills/{name}/SKILL.md", SKILL.encode())
    assert copies.list_changed_skills() == []
    (skills / "deploy/SKILL.md").write_text(SKILL.replace("How we", "How all"))
    assert copies.list_changed_skills() == ["deploy"]
    copies.record_intent(MAIN, SKILL.replace("How we", "How all").encode())
    assert copies.list_changed_skills() == [], "it is being written"
    shutil.rmtree(skills / "ship")
    assert copies.list_changed_skills() == ["ship"], "it was taken away"
    (skills / "deploy/SKILL.md").write_bytes(b"x" * 3_000_000)
    assert copies.list_changed_skills() == ["ship"], "the library says what is wrong with it"


def test_a_list_that_cannot_be_read_is_an_empty_one(copies: KnownCopies, tmp_path: Path) -> None:
    copies.record_seen(NOTES, b"one")
    copies.record_seen(MAIN, b"one")
    (tmp_path / "a/memories/.seen.json").write_text('{"memories/MEMORY.md": [[')
    assert copies.get_state(NOTES, ONE).written == "" and copies.get_state(MAIN, ONE).written == ONE
    copies.record_seen("memories/USER.md", b"two")
    assert copies.get_state("memories/USER.md").written == TWO
    there = (tmp_path / "a/memories/.seen.json").read_text()
    (tmp_path / "a/memories/.seen.json").write_text(there.ljust(8_000_000))
    assert copies.get_state("memories/USER.md").written == TWO
    (tmp_path / "a/memories/.seen.json").write_text(there.ljust(8_000_001))
    assert copies.get_state("memories/USER.md").written == "", "nobody wrote so long a one"


def home(db: StateDatabase, folder: Path) -> LearningService:
    """Return the learning service of a home that keeps its own list of what it saw."""
    reader = MemoryReader(db, FixedClock(), folder, (MemorySettings(), ReviewSettings()))
    reader.seen = KnownCopies(db, "", folder)
    return LearningService(reader)


def change(learning: LearningService, request: MemoryRequest | SkillRequest) -> None:
    outcome = asyncio.run(learning.submit(request, HAND))
    assert outcome.ok, outcome.text


def begins(learning: LearningService) -> str:
    """Begin a session there and give what it reads."""
    return asyncio.run(learning.reader.build_prompt_part()).text


def test_without_its_list_a_home_takes_an_older_version_of_a_skill_for_no_edit(
    db: StateDatabase, tmp_path: Path
) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    change(a, SkillRequest("create", "deploy", content=SKILL))
    assert "How we deploy." in begins(b)
    (tmp_path / "b/skills/.seen.json").unlink()
    for old, new in (("ship", "boat"), ("boat", "raft")):
        change(a, SkillRequest("patch", "deploy", old_string=old, new_string=new))
    begins(b)
    assert "make raft" in (tmp_path / "b" / MAIN).read_text()
    (tmp_path / "b/skills/.seen.json").unlink()
    (tmp_path / "b" / MAIN).write_text(SKILL.replace("ship", "canoe"))
    begins(b)
    begins(a)
    assert "make canoe" in (tmp_path / "a" / MAIN).read_text(), "what the ledger never saw is an edit"


def test_an_edit_by_hand_reaches_the_other_home(db: StateDatabase, tmp_path: Path) -> None:
    a, b = home(db, tmp_path / "a"), home(db, tmp_path / "b")
    change(a, MemoryRequest("add", content="One."))
    change(a, SkillRequest("create", "deploy", content=SKILL))
    assert "One." in begins(b)
    (tmp_path / "a" / NOTES).write_text("- One, by a.\n")
    (tmp_path / "b" / MAIN).write_text(SKILL.replace("How we", "How all"))
    begins(a)
    assert "One, by a." in begins(b) and "How all deploy." in begins(a)
    shutil.rmtree(tmp_path / "b/skills/deploy")
    begins(b)
    assert "deploy" not in begins(a) and not (tmp_path / "a" / MAIN).exists()


def test_what_a_home_saw_is_handed_over_to_a_team_and_back(
    db: StateDatabase, tmp_path: Path, clock: FixedClock
) -> None:
    place = Home(tmp_path / "home")
    own = StateDatabase.open(tmp_path / "own.db", clock)
    for profile in ("", "ada"):
        want(own, NOTES, b"two", profile)
        want(own, MAIN, b"two", profile)
        own.write_now(
            lambda c, p=profile: learned.store_text(c, b"one") and learned.set_written_hash(c, p, NOTES, ONE)
        )
    copy_seen_files(own, db, place, to_team=True)
    for profile, folder in (("", place.root), ("ada", place.people / "ada")):
        copies = KnownCopies(db, profile, folder)
        assert copies.get_state(NOTES).written == ONE and copies.get_state(MAIN).written == ""
        assert not (folder / "skills").exists()
        copies.record_seen(NOTES, b"three")
    copy_seen_files(own, db, place, to_team=False)
    for profile in ("", "ada"):
        states = own.read_now(lambda c, p=profile: learned.list_file_states(c, p))
        assert states == [FileState(NOTES, TWO, THREE), FileState(MAIN, TWO, "")]
    own.close()
