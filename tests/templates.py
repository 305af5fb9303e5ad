"""A new database file of a test begins as a copy of one that was made once: 1 ms of work in place of 12.

The schema's steps and their flushes are what making one costs. Commits do not wait for the disk: a killed
process loses nothing by that, only a machine without power does. Whether steps and flushes are right is asked
where files are made `step_by_step`, and by every program of a test that is not forked (tests/nursery.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from whet.sqlite.database import DatabaseFile

_NOW = "2026-11-21T09:00:00.000Z"
_PLAIN = DatabaseFile.__dict__["open_file"]
_WRITERS: dict[type[DatabaseFile], type[apsw.Connection]] = {}


def copy_new_databases(folder: Path, *kinds: type[DatabaseFile]) -> None:
    """From now on, let files of these kinds begin as copies of templates that are made in `folder`, and write
    them without waiting for the disk."""
    paths = {kind: folder / f"{kind.__name__}.db" for kind in kinds}
    layouts = {kind: kind.layout for kind in kinds}
    for kind, template in paths.items():
        kind.open_file(template, _NOW, 10.0).close()
        _WRITERS[kind] = kind.writer
        kind.writer = _without_flushes(kind.writer)
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


def _without_flushes(writer: type[apsw.Connection]) -> type[apsw.Connection]:
    class Hasty(writer):
        def pragma(self, name: str, *arguments: Any, **options: Any) -> Any:
            return super().pragma(name, *(("off",) if name == "synchronous" else arguments), **options)

        def execute(self, statements: str, *arguments: Any, **options: Any) -> Any:
            is_about_flushes = statements.startswith("PRAGMA synchronous =")
            return super().execute("" if is_about_flushes else statements, *arguments, **options)

    return Hasty


@contextlib.contextmanager
def step_by_step() -> Iterator[None]:
    """Let new files be made and written as the product does."""
    copying, hasty = DatabaseFile.__dict__["open_file"], {kind: kind.writer for kind in _WRITERS}
    try:
        DatabaseFile.open_file = _PLAIN
        for kind, writer in _WRITERS.items():
            kind.writer = writer
        yield
    finally:
        DatabaseFile.open_file = copying
        for kind, writer in hasty.items():
            kind.writer = writer
