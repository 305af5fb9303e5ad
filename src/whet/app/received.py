"""Files that somebody sends: kept under a safe name in a folder of their own, images told from their bytes.

What a file is called and what it says it is are its sender's words: the name keeps its letters and nothing
that leads elsewhere.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

from whet.contract.errors import WhetError
from whet.contract.messages import image_type as image_type  # of what is received, too

FOLDER = "received"
MOST_IMAGE_BYTES = 5_000_000


def save_received(workspace: Path, name: str, data: bytes) -> Path:
    """Keep a file in the folder for what is received, never over one that is there. Raises WhetError,
    OSError."""
    folder = workspace / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, 10_000):
        path = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as out:  # never over what is there, never through a link
                out.write(data)
        except FileExistsError:
            continue
        path.chmod(0o600)
        return path
    raise WhetError("there are too many files of that name")


def safe_name(name: str) -> str:
    """Give a file's own name: no folders, not hidden, nothing that can't be seen, at most 80 characters."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    kept = "".join(c if c.isalnum() or c in "._- ()+" else "_" for c in last).strip(" ._")
    stem, suffix = os.path.splitext(kept)
    return f"{stem[:60] or 'file'}{suffix[:20]}"
