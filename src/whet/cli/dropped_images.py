"""Image files that are dropped on the terminal, or whose path is pasted: what it types becomes a mention."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from whet.cli.attach import IMAGE_NAME

_DROPPED_CHARS = 4_000


def dropped_images(text: str) -> str:
    """Give what a terminal types for dropped or pasted image files (their paths, quoted or escaped, or file
    addresses) as mentions that send them along; any other text as it is."""
    if len(text) > _DROPPED_CHARS or not re.search(IMAGE_NAME, text, re.IGNORECASE):
        return text
    whole = text.strip()
    try:  # a path that was copied from a file manager has its blanks as they are
        words = [whole] if os.path.isfile(os.path.expanduser(whole)) else shlex.split(text)
    except ValueError:
        return text
    paths = [Path(unquote(word[7:]) if word.startswith("file://") else word).expanduser() for word in words]
    are_images = [p.is_absolute() and re.search(IMAGE_NAME + "$", p.name, re.IGNORECASE) for p in paths]
    if not paths or not all(are_images) or not all(map(os.path.isfile, paths)):
        return text
    return " ".join(f'@"{path}"' if " " in str(path) else f"@{path}" for path in paths) + " "
