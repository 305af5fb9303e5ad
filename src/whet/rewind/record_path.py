"""Where the record of a workspace is, for those who only ask whether there is one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def record_path(home: Path, workspace: str | Path) -> Path:
    """Return the path of a workspace's record in a home. Nothing is created."""
    root = os.fsencode(os.path.realpath(workspace))
    return home / "rewind" / hashlib.sha256(root).hexdigest()[:24] / "files.db"
