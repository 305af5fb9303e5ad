"""Store and find the exact bytes of files that git converts (line ends, encodings, `.gitattributes` filters).

Git does not write such a file back with the bytes that it had. A helper's tree and its merge must keep every
byte that the helper did not change, so the git objects of these files are replaced by their exact bytes. A
file is taken as converted if its size differs from its object's.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from whet.app.helpers.repository_git import last_error_line, run_git, run_git_process
from whet.contract.errors import ToolError


def store_bytes(root: Path, environment: Mapping[str, str]) -> None:
    """Replace the objects of converted files in an index by the files' exact bytes."""
    modes, objects = _read_entries(run_git(root, "ls-files", "-s", "-z", env=environment))
    paths = _list_resized(root, objects, environment)
    if not paths:
        return
    quoted = "".join(f"{_quote(path)}\n" for path in paths)
    command = ("hash-object", "-w", "--no-filters", "--stdin-paths")
    stored_ids = run_git(root, *command, env=environment, stdin=quoted).split()
    lines = (f"{modes[path]} {new_id}\t{path}\0" for path, new_id in zip(paths, stored_ids, strict=True))
    run_git(root, "update-index", "-z", "--index-info", env=environment, stdin="".join(lines))


def list_converted(repository: Path, commit: str, root: Path) -> dict[str, str]:
    """Return the files below `root` whose size differs from that in a commit, with the object in the
    commit."""
    listed = run_git(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
    _, objects = _read_entries(listed.replace(" blob ", " "))
    return {path: objects[path] for path in _list_resized(root, objects)}


def read_blob(repository: Path, object_id: str) -> bytes:
    """Return the bytes of an object. Raises ToolError."""
    result = run_git_process(repository, ("cat-file", "blob", object_id))
    if result.returncode:
        raise ToolError(f"git cat-file: {last_error_line(result)}", hint="git fsck says more")
    return result.stdout


def _read_entries(listed: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the modes and the object ids of the regular files in git's listing, by path."""
    modes: dict[str, str] = {}
    objects: dict[str, str] = {}
    for entry in listed.split("\0"):
        summary, _, path = entry.partition("\t")
        if summary.startswith("100"):
            modes[path], objects[path] = summary.split()[:2]
    return modes, objects


def _list_resized(
    root: Path, objects: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return the files below `root` that exist and whose size differs from their object's."""
    sizes: dict[str, int] = {}
    for path in objects:
        with contextlib.suppress(OSError):
            state = os.lstat(root / path)
            if stat.S_ISREG(state.st_mode):
                sizes[path] = state.st_size
    object_ids = "".join(f"{objects[path]}\n" for path in sizes)
    listed = run_git(root, "cat-file", "--batch-check=%(objectsize)", env=environment, stdin=object_ids)
    stored_sizes = listed.splitlines()
    return [path for path, stored in zip(sizes, stored_sizes, strict=True) if stored != str(sizes[path])]


def _quote(path: str) -> str:
    """Quote a path as git expects it on a line of `--stdin-paths`."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
