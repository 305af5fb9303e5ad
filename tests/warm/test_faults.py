"""A build that is killed, or that finds no room: the template that was there stays, and nothing is half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import FixedClock
from tests.warm.stores import open_store, pitfalls
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.store.database import StateDatabase
from whet.warm import template as templates
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.template_store import WarmTemplates

_BUILD = """
import os, signal, sys
from pathlib import Path
from whet.warm.template_store import WarmTemplates
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.store.database import StateDatabase
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

progress = lambda done, total: None
if sys.argv[2] == "reading":
    progress = die
else:
    setattr(os, sys.argv[2], die)  # the system's own: the last steps of writing
database = StateDatabase.open(Path(sys.argv[1]) / "state.db", SystemClock())
desk = WarmTemplates(Home(Path(sys.argv[1]) / "home"), database, SystemClock())
desk.build(BuildOptions(name="t", description="the new one"), MiningScope(min_messages=1), progress)
"""


@pytest.fixture
def database(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    opened = open_store(tmp_path, clock)
    pitfalls(opened, clock)
    yield opened
    opened.close()


def build(desk: WarmTemplates, **options: Any) -> None:
    desk.build(BuildOptions(name="t", **options), MiningScope(min_messages=1))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["reading", "fsync", "rename"])
def test_a_build_that_is_killed_leaves_the_old_template(
    tmp_path: Path, database: StateDatabase, clock: FixedClock, point: str
) -> None:
    desk = WarmTemplates(Home(tmp_path / "home"), database, clock)
    build(desk, description="the old one")
    done = subprocess.run([sys.executable, "-c", _BUILD, str(tmp_path), point], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert desk.load("t").description == "the old one"
    assert [(one.name, one.state) for one in desk.list_rows()] == [("t", "ready")]
    build(desk, description="the next one")
    assert desk.load("t").description == "the next one"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with one page of room."""
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], capture_output=True, timeout=30
        ).returncode
    ):
        pytest.skip("no disk of its own can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True, timeout=30)


def test_a_full_disk_is_one_line_and_the_old_template_stays(
    tmp_path: Path, database: StateDatabase, clock: FixedClock, small_disk: Path
) -> None:
    home = Home(tmp_path / "home")
    home.ensure()
    home.warm.symlink_to(small_disk)
    desk = WarmTemplates(home, database, clock)
    (small_disk / "filler").write_bytes(b"x" * 4096)
    with pytest.raises(ConfigError, match=r"can't write .*No space left"):
        build(desk)
    assert list(small_disk.iterdir()) == [small_disk / "filler"] and desk.list_rows() == []
    (small_disk / "filler").unlink()
    templates.save(home, templates.Template(name="t", description="the old one"))
    with pytest.raises(ConfigError, match="No space left"):
        build(desk, description="much longer " * 900)
    assert desk.load("t").description == "the old one" and len(list(small_disk.iterdir())) == 1
