"""Learning on a full disk: a clear line, nothing half, and all of it once there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.review.rig import LESSON, bench, corrected, does, says, talk
from whet.contract.errors import StoreFull
from whet_lab.practice.server import PracticeServer


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A home on a small disk of its own."""
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, timeout=30).returncode:
        pytest.skip("no disk of its own can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True, timeout=30)


def fill(path: Path) -> Path:
    filler = path / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    return filler


async def test_a_review_that_finds_no_room_is_done_once_there_is_some(tmp_path: Path, disk: Path) -> None:
    with PracticeServer(script=corrected(does(LESSON), says("Saved."), says("Saved."))) as server:
        async with bench(tmp_path, server=server) as b:
            await talk(b)
            filler = fill(disk)
            with pytest.raises(StoreFull, match="no space"):
                await b.review()
            assert b.memory() == ""
            filler.unlink()
            b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET run_after = created"))
        async with bench(tmp_path, server=server, session_id=b.session.id) as b:
            assert [done.state for done in await b.review()] == ["saved"]
            assert b.memory().count("./check --fast") == 1


async def test_a_lesson_whose_file_has_no_room_is_in_force_and_written_later(
    tmp_path: Path, disk: Path
) -> None:
    """The ledger lies elsewhere than the notes: what it holds is read by new sessions all the same."""
    notes = disk / "memories"
    apart = tmp_path / "apart"
    apart.mkdir()
    (disk / "state.db").symlink_to(apart / "state.db")
    async with bench(tmp_path, corrected(does(LESSON), says("Saved."), says("Nothing."))) as b:
        await talk(b)
        notes.mkdir(exist_ok=True)
        filler = fill(disk)
        [done] = await b.review()
        assert done.state == "saved" and b.memory() == ""
        new = await b.app.learning.build_prompt_part(("notes",))
        assert "./check --fast" in new.text
        filler.unlink()
        await b.app.learning.owner_service.apply()
        assert b.memory().count("./check --fast") == 1
