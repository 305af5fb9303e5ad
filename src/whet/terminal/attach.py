"""Attach piped text and images to a user message, within limits.

At most `CAP_CHARS` characters of a text are sent: its beginning and its end, and the total number.
"""

from __future__ import annotations

import base64
import math
import os
import re
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError, NotFound
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart, image_type
from whet.lookalike import find_similar_paths
from whet.regular import find_open_path, open_regular
from whet.sandbox.path_rules import read_path_rules
from whet.tools.encoding import sniff

CAP_CHARS = 200_000
IMAGE_CAP_BYTES = 20_000_000
MAX_READ_BYTES = 1_000_000_000
_CHUNK_BYTES = 1 << 20
IMAGE_NAME = r"\.(?:png|jpe?g|gif|webp)"
_MENTION = re.compile(r'(?:^|\s)@(?:"([^"\n]+)"|([^\s@"]+))')
_IMAGE_MENTION = re.compile(
    rf"(?:^|\s)@(?:\"([^\"\n]+{IMAGE_NAME})\"|(\S+{IMAGE_NAME}))(?=[.,;:?!)\]'\"]*(?:\s|$))", re.IGNORECASE
)


def cap_text(text: str, cap_chars: int = CAP_CHARS) -> str:
    """Return `text`; if it is too long, its beginning and end, and a line between them that counts the
    omitted characters."""
    if len(text) <= cap_chars:
        return text
    head, tail = cap_chars * 3 // 4, cap_chars // 4
    left_out = len(text) - head - tail
    note = f"[... {left_out:,} of {len(text):,} characters left out here ...]"
    return f"{text[:head]}\n{note}\n{text[-tail:]}"


def fence_text(text: str, label: str) -> str:
    """Return `text` in a code fence that it can't close, below a line with its label and size."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    newline = "" if text.endswith("\n") else "\n"
    return f"{label} ({len(text):,} characters):\n{fence}\n{cap_text(text)}{newline}{fence}"


def join_piped_text(question: str, piped: str) -> str:
    """Return the text of a user message from a question and piped text. Either of them may be empty."""
    if not piped.strip():
        return cap_text(question)
    if not question:
        return cap_text(piped)
    return f"{cap_text(question)}\n\n{wrap_in_tag('stdin', fence_text(piped, 'Standard input'))}"


def shortening_notice(question: str, piped: str) -> str:
    """Return a line for the person if one of the texts is shortened, or an empty string."""
    names = [name for name, text in (("the question", question), ("standard input", piped)) if is_cut(text)]
    what = " and ".join(names)
    return f"{what} was too long: the middle is left out, {CAP_CHARS:,} characters are sent" if names else ""


def is_cut(text: str) -> bool:
    """Return whether a text is too long to be sent whole."""
    return len(text) > CAP_CHARS


def find_images(text: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Return the image files that `text` names as @path or @"path", and the names without a file.

    Paths are relative to `folder`. If no file has the exact name, a single one whose name looks the same is
    taken.
    """
    names = [quoted or bare for quoted, bare in _IMAGE_MENTION.findall(text)]
    paths = {name: _find_path(folder, os.path.expanduser(name)) for name in names}
    files = {name: path for name, path in paths.items() if os.path.isfile(path)}
    return list(files.values()), [name for name in paths if name not in files]


def _find_path(folder: Path, name: str) -> Path:
    matches = find_similar_paths(folder, name)
    return matches[0] if len(matches) == 1 else folder / name


def find_missing(text: str, folder: Path) -> list[str]:
    """Return the names that `text` mentions as @path or @"path" and that do not exist, except images.

    A word without a point counts as a name only if it has a slash and its folder exists: `@types/node` is
    usually not a path.
    """
    missing: list[str] = []
    for quoted, bare in _MENTION.findall(text):
        name = quoted or bare.rstrip(".,;:!?)]}")
        path = os.path.expanduser(name)
        is_image = re.search(IMAGE_NAME + "$", name, re.IGNORECASE) is not None
        is_name = "." in name or ("/" in name and os.path.isdir(folder / os.path.dirname(path)))
        if is_name and not is_image and "(" not in name and not os.path.lexists(_find_path(folder, path)):
            missing.append(name)
    return list(dict.fromkeys(missing))


def _refuse_protected(file_path: Path, path: Path, folder: Path, deny: Sequence[str]) -> None:
    """Raise ConfigError if a `deny` rule protects a file. `path` is its name for the person."""
    if rule := read_path_rules(deny).find(file_path, folder, writes=False):
        raise ConfigError(f"the rule deny: {rule} protects {path}", hint="whet config get approval.deny")


def load_image(path: Path, folder: Path, deny: Sequence[str] = ()) -> ImagePart:
    """Read an image file. Its type follows from its bytes, not from its name.

    A path in `folder`, the workspace, must not lead out of it: a command may have put a link there. Raises
    NotFound if the file can't be read, and ConfigError if the `deny` rules protect it or models can't take
    the image.
    """
    file_path = _find_path(Path.cwd(), os.path.abspath(os.path.expanduser(path)))
    _refuse_protected(file_path, path, folder, deny)
    try:
        with open_regular(file_path, folder if file_path.is_relative_to(folder) else None) as file:
            _refuse_protected(find_open_path(file.fileno()), path, folder, deny)
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


def read_pipe(
    fd: int = 0,
    *,
    wait_s: float | None = None,
    slow_s: float = math.inf,
    report_slow: Callable[[int], object] = lambda count_bytes: None,
) -> str | None:
    """Read `fd` to its end as text, in UTF-8 or another encoding.

    Returns None if nothing arrives within `wait_s` seconds (None waits forever). If the input has not ended
    after `slow_s`, `report_slow` gets the number of bytes so far, once. Of a long input, only the first and
    last `4 * CAP_CHARS` bytes are kept; those between are counted. Reading ends after `MAX_READ_BYTES`, as an
    input may never end. Raises ConfigError for binary input.
    """
    if wait_s is not None and not select.select([fd], [], [], wait_s)[0]:
        return None
    head, tail, dropped = bytearray(), bytearray(), 0
    keep = CAP_CHARS * 4
    total, began_s = 0, time.monotonic()
    while True:
        left_s = slow_s - (time.monotonic() - began_s)
        if left_s != math.inf and not (left_s > 0 and select.select([fd], [], [], left_s)[0]):
            report_slow(total)
            slow_s = math.inf
        chunk = os.read(fd, _CHUNK_BYTES) if total < MAX_READ_BYTES else b""
        if not chunk:
            break
        total += len(chunk)
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
        return (head + tail).decode(encoding.name, encoding.errors)
    rest = "; the input went on after this" if total >= MAX_READ_BYTES else ""
    note = f"\n[... {dropped:,} bytes left out here{rest} ...]\n"
    tail = tail[len(tail) % 2 :] if encoding.name.startswith("utf-16") else tail
    return head.decode(encoding.name, encoding.errors) + note + tail.decode(encoding.name, encoding.errors)
