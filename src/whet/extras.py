"""The command that adds one of Whet's extras to this installation.

`uv tool install` keeps a program in an environment that pip does not reach. Its receipt there names the
source and the extras; each install has to name all of them again.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

_NAME = "whet-agent"


def install_command(extra: str) -> str:
    """Return the command that installs an extra into the environment of this program."""
    requirement = _read_receipt(Path(sys.prefix) / "uv-receipt.toml")
    if requirement is None:
        return f"pip install '{_NAME}[{extra}]'"
    extras = ",".join(sorted({*requirement.get("extras", ()), extra}))
    folder = requirement.get("directory") or requirement.get("editable") or requirement.get("path")
    source = f" @ git+{requirement['git']}" if "git" in requirement else ""
    return f"uv tool install --force '{folder or _NAME}[{extras}]{source}'"


def _read_receipt(path: Path) -> dict[str, Any] | None:
    """Return what a receipt says of Whet, or None if uv did not install this environment as a tool."""
    try:
        rows: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["tool"]["requirements"]
    except (OSError, ValueError, KeyError):
        return None
    return next((row for row in rows if row.get("name") == _NAME), None)
