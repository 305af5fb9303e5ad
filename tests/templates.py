"""A new database file of a test begins as a copy of one that was made once: 1 ms of work in place of 12.

The schema's steps and their flushes are what making one costs. Whether they are right is asked where files
are made `step_by_step`, and by every program of a test that is not forked (tests/nursery.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.sqlite.database import DatabaseFile

_NOW = "2026-11-21T09:00:00.000Z"
_PLAIN = DatabaseFile.__dict__["open_file"]


def copy_new_databases(folder: Path, *kinds: type[DatabaseFile]) -> None:
    """From now on, let files of these kinds begin as copies of templates that are made in `folder`."""
    paths = {kind: folder / f"{kind.__name__}.db" for kind in kinds}
    layouts = {kind: kind.layout for kind in kinds}
    for kind, template in paths.items():
        kind.open_file(template, _NOW, 10.0).close()
    counter = itertools.count()

    def open_file(kind: type[DatabaseFile], path: Path, now: str, patience_s: float) -> Any:
        if kind in paths and kind.layout is layouts[kind] and not path.exists():
            copy = folder / f"{os.getpid()}-{next(counter)}"
            # What the folder or the disk refuses here, it refuses again where the product opens the file.
            with contextlib.suppress(OSError):
                try:
                    shutil.copy(paths[kind], copy)
                    os.link(copy, path)
                finally:
                    copy.unlink(missing_ok=True)
        return _PLAIN.__func__(kind, path, now, patience_s)

    DatabaseFile.open_file = classmethod(open_file)  # type: ignore[assignment]


@contextlib.contextmanager
def step_by_step() -> Iterator[None]:
    """Let new files be made as the product makes them."""
    before = DatabaseFile.__dict__["open_file"]
    DatabaseFile.open_file = _PLAIN
    try:
        yield
    finally:
        DatabaseFile.open_file = before
