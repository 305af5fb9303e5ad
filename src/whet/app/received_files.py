"""Store files that people send: under a safe name in a folder of their own. The image type is read from the
bytes.

A file's name and declared type come from its sender: the stored name keeps the letters but can't lead to
another folder.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from pathlib import Path

from whet.beneath import create_beneath
from whet.contract.errors import WhetError
from whet.contract.messages import image_type as image_type  # also for received files

FOLDER = "received"
MAX_IMAGE_BYTES = 5_000_000


def save_attachment(workspace: Path, name: str, data: bytes) -> Path:
    """Store a file in the workspace's folder for received files, never over one that is there and through no
    link that a command left. Returns its path. Raises WhetError, OSError."""
    workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, 10_000):
        path = f"{FOLDER}/{stem}{suffix}" if number == 1 else f"{FOLDER}/{stem}-{number}{suffix}"
        try:
            create_beneath(workspace, path, data)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise WhetError(
                    f"{FOLDER} in the workspace is not a folder", hint="remove it first"
                ) from error
            raise
        return workspace / path
    raise WhetError("there are too many files of that name")


def safe_name(name: str) -> str:
    """Return a file's own name: no folders, not hidden, no option of a program, nothing that can't be seen,
    at most 80 characters."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    cleaned = "".join(c if c.isalnum() or c in "._- ()+" else "_" for c in last).strip(" ._").lstrip("-")
    stem, suffix = os.path.splitext(cleaned)
    return f"{stem[:60] or 'file'}{suffix[:20]}"
