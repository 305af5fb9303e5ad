"""Decide in which folders a note applies.

A note of MEMORY.md that was learned in a session applies in that session's repository or folder, and below
it. All working trees of a repository (`git worktree`) count as its main one. A note that the person wrote or
changed by hand applies everywhere, and so do those of USER.md. The folders are read from the ledger; the
file does not name them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import apsw

from whet.config.paths import list_project_folders
from whet.contract.texts import flat
from whet.sandbox.gitlinks import find_worktree_folders
from whet.store import ledger

NoteFolders = Mapping[str, frozenset[str]]
"""The folders in which a note applies, by its statement. A note that applies everywhere is not included."""


def read_note_folders(connection: apsw.Connection, profile: str) -> NoteFolders:
    """Return the folders of the active notes."""
    rows = ledger.list_note_folders(connection, profile)
    roots = {folder: _find_root(folder) for folder in {folder for _, folder in rows}}
    folders: dict[str, frozenset[str]] = {}
    for statement, folder in rows:
        folders[statement] = folders.get(statement, frozenset()) | {roots[folder]}
    return {statement: roots for statement, roots in folders.items() if "" not in roots}


def applies_in(folders: NoteFolders, statement: str, folder: str) -> bool:
    """Return whether a note applies in a folder of the main working tree, see `find_main_folder`. All notes
    apply in an unknown one (empty)."""
    note_folders = folders.get(statement)
    if not folder or note_folders is None:
        return True
    return any(_is_below(folder, note_folder) for note_folder in note_folders)


def find_main_folder(folder: str) -> str:
    """Return the same folder in the repository's main working tree, or the folder itself. "" stays."""
    root = list_project_folders(Path(folder))[0] if folder else Path()
    main = _find_main_tree(root) if folder else root
    return folder if main == root else os.path.join(main, os.path.relpath(os.path.abspath(folder), root))


def group_by_folder(folders: NoteFolders, statements: Iterable[str]) -> dict[str, list[str]]:
    """Return the statements that apply only in some folders, by folder."""
    groups: dict[str, list[str]] = {}
    for statement in statements:
        for folder in sorted(folders.get(statement, ())):
            groups.setdefault(folder, []).append(statement)
    return groups


def describe_groups(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return lines about the notes that apply only in some folders, or an empty list."""
    lines: list[str] = []
    for folder, statements in groups.items():
        lines += [f"Only in {folder} and below:", *(f"- {flat(text)}" for text in statements)]
    return lines


def _find_root(folder: str) -> str:
    """Return the repository that a folder belongs to, or the folder itself. "" means everywhere and stays."""
    return str(_find_main_tree(list_project_folders(Path(folder))[0])) if folder else ""


def _find_main_tree(root: Path) -> Path:
    """Return the main working tree of the repository with a linked working tree at `root`, or `root`."""
    folders = find_worktree_folders(str(root))
    return Path(folders[0]).parent if folders and os.path.basename(folders[0]) == ".git" else root


def _is_below(folder: str, parent: str) -> bool:
    return folder == parent or folder.startswith(parent.rstrip("/") + "/")
