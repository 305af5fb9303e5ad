"""Copy the facts and the settings file of a Hermes Agent home's memory provider.

The provider itself is a plugin, which `hermes_plugins` copies if its code is in the home.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from whet.config.paths import Home
from whet.moving.importing import ImportOutcome

FACTS = "memory_store.db"


def import_memory(home: Home, root: Path, provider: str, *, is_found: bool, dry: bool) -> list[ImportOutcome]:
    """Copy the files of `provider` from the home `root`, and never replace existing ones.

    `is_found` is False if the provider's code is not in that home.
    """
    outcomes: list[ImportOutcome] = []
    for name in (FACTS, f"{provider}.json"):
        source, target = root / name, home.root / name
        if not source.is_file() or not source.resolve().is_relative_to(root.resolve()):
            continue
        if target.exists():
            outcomes.append(ImportOutcome(name, "kept", "a file of that name is here already"))
            continue
        try:
            detail = _copy_facts(source, target, dry=dry) if name == FACTS else _copy(source, target, dry=dry)
        except (OSError, sqlite3.Error) as error:
            outcomes.append(ImportOutcome(name, "left", str(error)))
            continue
        outcomes.append(ImportOutcome(name, "copied", detail))
    if not is_found:
        where = f"copy plugins/memory/{provider} of Hermes' code to {home.root / 'plugins'}"
        outcomes.append(
            ImportOutcome(
                "memory.provider",
                "left",
                f"{where}, then whet plugins enable {provider} (code is not in the home)",
            )
        )
    return outcomes


def _copy(source: Path, target: Path, *, dry: bool) -> str:
    if not dry:
        shutil.copyfile(source, target)
        target.chmod(0o600)
    return "the provider's settings"


def _copy_facts(source: Path, target: Path, *, dry: bool) -> str:
    """Copy a database that may be in use. Returns its number of facts as text."""
    with closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old:
        (count,) = old.execute("SELECT count(*) FROM facts").fetchone()
        if not dry:
            with closing(sqlite3.connect(target)) as new:
                old.backup(new)
            target.chmod(0o600)
    return f"{count} fact{'' if count == 1 else 's'}"
