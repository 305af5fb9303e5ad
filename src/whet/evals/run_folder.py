"""The folder of an evaluation that can be resumed: whose runs it holds, and each run once it is done."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whet.contract.errors import ConfigError


def claim(folder: Path, settings: object, others: str) -> None:
    """Make the folder for runs with these settings. Raises ConfigError where it holds `others`."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    path, mine = folder / "settings.json", msgspec.json.encode(settings)
    if path.exists() and path.read_bytes() != mine:
        raise ConfigError(
            f"{folder} holds {others}", hint="name another folder with --out, or begin anew with --fresh"
        )
    path.write_bytes(mine)


def keep(path: Path, run: object) -> None:
    """Store a finished run as JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(run))
    part.replace(path)
