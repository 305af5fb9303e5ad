"""Store files that people send in a folder of their own.

The name comes from the sender: the stored name is cleaned, so that it can't lead to another folder. The
declared type is not trusted: an image's type is read from its bytes.
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
    """Store a file in the workspace's folder for received files and return its path. Never replaces a file or
    follows a link. Raises WhetError, OSError."""
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
    """Return a file's name without folders, invisible characters and a leading dot or dash, cut to 80
    characters."""
    base_name = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    cleaned = "".join(char if char.isalnum() or char in "._- ()+" else "_" for char in base_name)
    cleaned = cleaned.strip(" ._").lstrip("-")
    stem, suffix = os.path.splitext(cleaned)
    return f"{stem[:60] or 'file'}{suffix[:20]}"
