"""Copy plugins of Hermes Agent, including context engines, into this home.

A plugin's code runs as the person at every start, so one is enabled only with their consent, as after
`whet plugins install`. Existing plugins are never replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from whet.config import edit, load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.moving.importing import Consent, ImportOutcome
from whet.plugins.manifest import read_manifest


def import_plugins(
    home: Home, folders: list[Path], enabled: list[str], consent: Consent, *, dry: bool
) -> list[ImportOutcome]:
    """Copy plugins, and enable those that were enabled in Hermes if the person consents.

    A plugin whose name is enabled here without being installed is not copied, because that would run it.
    """
    outcomes: list[ImportOutcome] = []
    accepted: list[str] = []
    enabled_here = load.load(home, environ={}).settings.plugins.enabled
    for folder in folders:
        target = home.root / "plugins" / folder.name
        if target.exists():
            outcomes.append(ImportOutcome(folder.name, "kept", "a plugin of that name is here already"))
            continue
        try:
            manifest = read_manifest(folder)
            if {manifest.name, folder.name} & set(enabled_here):
                outcomes.append(ImportOutcome(folder.name, "left", "its name is in plugins.enabled already"))
                continue
            if not dry:
                _copy(folder, target)
        except (WhetError, OSError, shutil.Error) as error:
            outcomes.append(ImportOutcome(folder.name, "left", str(error)))
            continue
        was_enabled = manifest.name in enabled or folder.name in enabled
        if was_enabled and consent(f"Enable the plugin {manifest.name}?", _describe_code(folder)):
            accepted.append(manifest.name)
            outcomes.append(ImportOutcome(folder.name, "copied", "enabled, as it was there"))
        else:
            hint = f"not enabled; it was there: whet plugins enable {manifest.name}"
            outcomes.append(ImportOutcome(folder.name, "copied", hint if was_enabled else "not enabled"))
    if accepted and not dry:
        edit.set_value(home, "plugins.enabled", ", ".join(dict.fromkeys([*enabled_here, *accepted])))
    return outcomes


def _describe_code(folder: Path) -> str:
    """Return a text that lists the code of a plugin and its rights."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    return "\n".join(["Each start runs this code as you, with your files, network and keys:", *files])


def _copy(folder: Path, target: Path) -> None:
    """Copy a plugin's folder completely or not at all. Link targets are copied; caches are not."""
    partial = target.with_name(f".{target.name}.half")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(folder, partial, ignore=shutil.ignore_patterns("__pycache__", ".git"))
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
