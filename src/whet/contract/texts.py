"""JSON as the types of this program, in any thread; the texts inside such a value; the parts of a URL.

msgspec (0.22) notes a struct's fields on the class before it has worked all of them out: two threads that
meet a type for the first time at once end the process. So it meets every type here, under one lock.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload
from urllib.parse import SplitResult, urlsplit

import msgspec

T = TypeVar("T")
PORTS = {"http": 80, "https": 443}
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What reading a stranger's JSON may raise: it is none, its bytes are no text, it is nested too deep."""
_DIGITS = 15
_lock = threading.RLock()
_decoders: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}

# In the order of telling most.
_SUBJECTS = "command pattern path file_path url query question name action goal task".split()  # noqa: SIM905


@overload
def decoder(kind: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: object, *, strict: bool = True) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """Give the decoder of a type, one for all who ask; without `strict`, "7" is read as a number, too."""
    found = _decoders.get((kind, strict))
    if found is None:
        with _lock:
            found = _decoders.setdefault((kind, strict), msgspec.json.Decoder(kind, strict=strict))
    return found


def from_json(data: bytes | bytearray | memoryview | str, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON as `kind`. Raises what `NOT_JSON` names, also where the JSON is of another shape."""
    return decoder(kind, strict=strict).decode(data)


def from_values(
    value: Any, kind: type[T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> T:
    """Give a value of dicts, lists and texts as `kind`; `dec_hook` makes types that msgspec doesn't know.
    Raises msgspec.ValidationError."""
    with _lock:
        return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)


def flat(text: str) -> str:
    """Give a text on one line."""
    return " ".join(text.split())


def short(text: str, limit: int = 80) -> str:
    """Give a text on one line, cut where it is longer."""
    text = flat(text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Write a count with its noun: "1 file", "2,000 files"; `nouns` where an s more doesn't do."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def arguments_of(text: str) -> dict[str, Any]:
    """Read what a tool's call was given; nothing where that is no object of JSON."""
    try:
        return from_json(text or "{}", dict[str, Any])
    except NOT_JSON:
        return {}


def subject_of(arguments: Mapping[str, object]) -> str:
    """Say what a tool's call is about: the text among its arguments that tells most; "" for none. Of a search
    that is what for, then where; of a command in another folder where, then what."""
    pattern, path = arguments.get("pattern"), arguments.get("path")
    if isinstance(pattern, str) and isinstance(path, str) and pattern and path not in ("", "."):
        return f"{pattern}  in {path}"
    command, folder = arguments.get("command"), arguments.get("workdir")
    if isinstance(command, str) and isinstance(folder, str) and command and folder not in ("", "."):
        return f"in {folder}: {command}"
    return next((value for key in _SUBJECTS if isinstance(value := arguments.get(key), str) and value), "")


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Give the value with `change` made of every text in it; keys stay, a tuple comes back as a list."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    return value


def tagged(tag: str, text: str) -> str:
    """Give a text that no person typed as a part of a message: nothing is learned from it as their word."""
    return f"<{tag}>{unclosing(tag, text)}</{tag}>"


def unclosing(tag: str, text: str) -> str:
    """Give `text` so that it can't end the tag that it is put in."""
    return re.sub(rf"</(?={tag}\b)", r"<\\/", text, flags=re.IGNORECASE)


def typed_number(text: str) -> int | None:
    """Read a whole number that somebody typed; None for anything else, or one that is too large."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def encodable(text: str) -> str:
    """Give the text with � for lone surrogates, which no encoding can hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def texts_of(value: object) -> list[str]:
    """Give every text in a value of JSON's kinds, keys aside, in order."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    map_texts(value, note)
    return found


def parts_of(url: str) -> SplitResult | None:
    """Split a URL; None where it is no http(s) URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, a port that is none
        return None
    return parts if usable else None


def nameless(url: str) -> str:
    """Give a URL, usable or not, without the name and password in it."""
    head, mark, rest = url.partition("://")
    return head + mark + rest.rpartition("@")[2] if mark else url
