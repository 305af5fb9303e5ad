"""Copies plugins of Hermes Agent, including context engines, into this home.

A plugin's code runs as the person at every start, so one is enabled only with their consent, as after
`whet plugins install`. Existing plugins are never replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from whet.config import edit, load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.moving.carry import Consent, ImportOutcome
from whet.plugins.manifest import read_manifest


def import_plugins(
    home: Home, folders: list[Path], enabled: list[str], consent: Consent, *, dry: bool
) -> list[ImportOutcome]:
    """Copy plugins, and enable those that were enabled in Hermes and have the person's consent. A plugin
    whose name is enabled here without being installed is left: copying it would run it."""
    outcomes: list[ImportOutcome] = []
    on: list[str] = []
    before = load.load(home, environ={}).settings.plugins.enabled
    for folder in folders:
        target = home.root / "plugins" / folder.name
        if target.exists():
            outcomes.append(ImportOutcome(folder.name, "kept", "a plugin of that name is here already"))
            continue
        try:
            manifest = read_manifest(folder)
            if {manifest.name, folder.name} & set(before):
                outcomes.append(ImportOutcome(folder.name, "left", "its name is in plugins.enabled already"))
                continue
            if not dry:
                _copy(folder, target)
        except (WhetError, OSError, shutil.Error) as error:
            outcomes.append(ImportOutcome(folder.name, "left", str(error)))
            continue
        was_on = manifest.name in enabled or folder.name in enabled
        if was_on and consent(f"Enable the plugin {manifest.name}?", _describe_code(folder)):
            on.append(manifest.name)
            outcomes.append(ImportOutcome(folder.name, "copied", "enabled, as it was there"))
        else:
            hint = f"not enabled; it was there: whet plugins enable {manifest.name}"
            outcomes.append(ImportOutcome(folder.name, "copied", hint if was_on else "not enabled"))
    if on and not dry:
        edit.set_value(home, "plugins.enabled", ", ".join(dict.fromkeys([*before, *on])))
    return outcomes


def _describe_code(folder: Path) -> str:
    """Say which code a plugin runs, and with which rights."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    return "\n".join(["Each start runs this code as you, with your files, network and keys:", *files])


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
