"""Where a lone writer's commits run: on its loop's thread if the disk is quick, otherwise on the lane's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from whet.sqlite.database import Layout
from whet_confirm.database import ConfirmDatabase


class _SlowDisk(ConfirmDatabase):
    layout: ClassVar[Layout] = msgspec.structs.replace(ConfirmDatabase.layout, quick_commit_s=0.0)


class _QuickDisk(ConfirmDatabase):
    layout: ClassVar[Layout] = msgspec.structs.replace(ConfirmDatabase.layout, quick_commit_s=3600.0)


@pytest.mark.parametrize(("kind", "is_direct"), [(_SlowDisk, False), (_QuickDisk, True)])
async def test_a_lone_writer_commits_on_its_own_thread_only_on_a_disk_that_is_quick_for_that_file(
    tmp_path: Path, kind: type[ConfirmDatabase], is_direct: bool
) -> None:
    database = kind.open(tmp_path / "confirmations.db")
    try:
        threads = [await database.append(lambda _: threading.get_ident()) for _ in range(12)]
    finally:
        database.close()
    assert (threads[-1] == threading.get_ident()) is is_direct
    # The second commit shows the pace, so that on a slow disk every other attempt goes to the lane's thread.
    assert (threading.get_ident() in threads[4:]) is is_direct
