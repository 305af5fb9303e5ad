"""The parts of a user message besides the typed text: piped input, pasted text, images.

Everything is bounded here: a model gets at most `CAP_CHARS` characters of piped or pasted text, its head
and tail, with the total named. This module does not know about sessions.
"""

from __future__ import annotations

import base64
import os
import re
import select
from collections.abc import Sequence
from pathlib import Path

from whet.contract.errors import ConfigError, NotFound
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart, image_type
from whet.lookalike import find_by_eye
from whet.regular import open_regular
from whet.sandbox.path_rules import read_path_rules
from whet.tools.encoding import sniff

CAP_CHARS = 200_000
IMAGE_CAP_BYTES = 20_000_000
_CHUNK_BYTES = 1 << 20
IMAGE_NAME = r"\.(?:png|jpe?g|gif|webp)"
_MENTION = re.compile(r'(?:^|\s)@(?:"([^"\n]+)"|([^\s@"]+))')
_IMAGE_MENTION = re.compile(
    rf"(?:^|\s)@(?:\"([^\"\n]+{IMAGE_NAME})\"|(\S+{IMAGE_NAME}))(?=[.,;:?!)\]'\"]*(?:\s|$))", re.IGNORECASE
)


def cap_text(text: str, cap_chars: int = CAP_CHARS) -> str:
    """Return `text`, or its head and tail with a line between them that names the omitted and the total
    characters."""
    if len(text) <= cap_chars:
        return text
    head, tail = cap_chars * 3 // 4, cap_chars // 4
    left_out = len(text) - head - tail
    note = f"[... {left_out:,} of {len(text):,} characters left out here ...]"
    return f"{text[:head]}\n{note}\n{text[-tail:]}"


def fence_text(text: str, label: str) -> str:
    """Return `text` in a code fence that it can't close itself, below a line with its label and size."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    newline = "" if text.endswith("\n") else "\n"
    return f"{label} ({len(text):,} characters):\n{fence}\n{cap_text(text)}{newline}{fence}"


def join_piped_text(question: str, piped: str) -> str:
    """Return the text of a user message from a question and piped text. Either of them may be empty."""
    if not piped.strip():
        return cap_text(question)
    return f"{cap_text(question)}\n\n{fence_text(piped, 'Standard input')}" if question else cap_text(piped)


def shortening_notice(question: str, piped: str) -> str:
    """Return the line for the person if a part of what is sent is left out, or an empty string."""
    names = [name for name, text in (("the question", question), ("standard input", piped)) if is_cut(text)]
    what = " and ".join(names)
    return f"{what} was too long: the middle is left out, {CAP_CHARS:,} characters are sent" if names else ""


def is_cut(text: str) -> bool:
    """Return whether a text is longer than what is sent of it."""
    return len(text) > CAP_CHARS


def find_images(text: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Return the image files that `text` names as @path or @"path", and the names without a file.

    Paths are relative to `folder`. A file whose name only looks the same is meant if there is no other.
    """
    names = [quoted or bare for quoted, bare in _IMAGE_MENTION.findall(text)]
    paths = {name: _find_seen(folder, os.path.expanduser(name)) for name in names}
    files = {name: path for name, path in paths.items() if os.path.isfile(path)}
    return list(files.values()), [name for name in paths if name not in files]


def _find_seen(folder: Path, name: str) -> Path:
    matches = find_by_eye(folder, name)
    return matches[0] if len(matches) == 1 else folder / name


def find_missing(text: str, folder: Path) -> list[str]:
    """Return the names of files, other than images, that `text` mentions as @path or @"path" and that do not
    exist. A word without a point and a slash is not a file's name, nor is a name like `@types/node`, without
    a point and in a folder that does not exist."""
    names = [quoted or bare.rstrip(".,;:!?)]}") for quoted, bare in _MENTION.findall(text)]
    likely = [
        name
        for name in names
        if "(" not in name
        and (
            "." in name or ("/" in name and os.path.isdir(folder / os.path.dirname(os.path.expanduser(name))))
        )
    ]
    return [
        name
        for name in dict.fromkeys(likely)
        if not re.search(IMAGE_NAME + "$", name, re.IGNORECASE)
        and not os.path.lexists(_find_seen(folder, os.path.expanduser(name)))
    ]


def load_image(path: Path, folder: Path, deny: Sequence[str] = ()) -> ImagePart:
    """Read an image file; its type is told from its bytes, not its name. One that is named in `folder`, the
    workspace, must really lie there: a command may have put a link in its place. What the `deny` rules keep
    from readers is refused."""
    named = _find_seen(Path.cwd(), os.path.abspath(os.path.expanduser(path)))
    if rule := read_path_rules(deny).find(named, folder, writes=False):
        raise ConfigError(f"the rule deny: {rule} protects {path}", hint="whet config get approval.deny")
    try:
        with open_regular(named, folder if named.is_relative_to(folder) else None) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            data = file.read(IMAGE_CAP_BYTES)
    except OSError as error:
        raise NotFound(f"can't read the image {path}: {error.strerror}") from error
    if size_bytes > IMAGE_CAP_BYTES:
        raise ConfigError(
            f"the image {path} has {size_bytes:,} bytes, more than {IMAGE_CAP_BYTES:,}",
            hint="make it smaller first",
        )
    media_type = image_type(data)
    if not media_type:
        raise ConfigError(f"{path} is not an image that models read", hint="PNG, JPEG, GIF and WebP work")
    if fault := image_fault(data):
        raise ConfigError(f"models can't take the image {path}: {fault}", hint="convert or shrink it first")
    return ImagePart(media_type, base64.b64encode(data).decode("ascii"))


def read_pipe(fd: int = 0, *, wait_s: float | None = None) -> str | None:
    """Read `fd` to its end as text, in UTF-8 or another encoding.

    Returns None if nothing arrives within `wait_s` seconds (None waits forever).

    A long input is not held whole: its first and last `4 * CAP_CHARS` bytes are kept, and the bytes
    between them are counted. Raises ConfigError for binary input.
    """
    if wait_s is not None and not select.select([fd], [], [], wait_s)[0]:
        return None
    head, tail, dropped = bytearray(), bytearray(), 0
    keep = CAP_CHARS * 4
    while chunk := os.read(fd, _CHUNK_BYTES):
        room = keep - len(head)
        head += chunk[:room]
        tail += chunk[max(room, 0) :]
        if len(tail) > 8 * keep:
            dropped += len(tail) - keep
            del tail[:-keep]
    encoding = sniff(bytes(head), is_whole=not tail)
    if encoding is None:
        raise ConfigError("standard input is binary", hint="name the file instead; --image FILE for images")
    del head[: len(encoding.mark)]
    if not dropped:
        return (head + tail).decode(encoding.name, "replace")
    note = f"\n[... {dropped:,} bytes left out here ...]\n"
    tail = tail[len(tail) % 2 :] if encoding.name.startswith("utf-16") else tail
    return head.decode(encoding.name, "replace") + note + tail.decode(encoding.name, "replace")
