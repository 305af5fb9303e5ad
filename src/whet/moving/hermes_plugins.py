"""Copies plugins of Hermes Agent, including context engines, into this home.

Their code is not run during the import. Existing plugins are never replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from whet.config import edit, load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.moving.carry import ImportOutcome
from whet.plugins.manifest import read_manifest


def import_plugins(home: Home, folders: list[Path], enabled: list[str], *, dry: bool) -> list[ImportOutcome]:
    """Copy plugins, and enable those that were enabled in Hermes. Existing plugins are never replaced."""
    outcomes: list[ImportOutcome] = []
    on: list[str] = []
    for folder in folders:
        target = home.root / "plugins" / folder.name
        if target.exists():
            outcomes.append(ImportOutcome(folder.name, "kept", "a plugin of that name is here already"))
            continue
        try:
            manifest = read_manifest(folder)
            if not dry:
                _copy(folder, target)
        except (WhetError, OSError, shutil.Error) as error:
            outcomes.append(ImportOutcome(folder.name, "left", str(error)))
            continue
        is_on = manifest.name in enabled or folder.name in enabled
        on += [manifest.name] if is_on else []
        outcomes.append(
            ImportOutcome(folder.name, "copied", "enabled, as it was there" if is_on else "not enabled")
        )
    if on and not dry:
        before = load.load(home, environ={}).settings.plugins.enabled
        edit.set_value(home, "plugins.enabled", ", ".join(dict.fromkeys([*before, *on])))
    return outcomes


def _copy(folder: Path, target: Path) -> None:
    """Copy a plugin's folder completely or not at all. Link targets are copied; caches are not."""
    half = target.with_name(f".{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(folder, half, ignore=shutil.ignore_patterns("__pycache__", ".git"))
        half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)
