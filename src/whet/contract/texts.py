"""The texts inside a value of JSON's kinds, the ways in which text is no JSON, and the parts of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

PORTS = {"http": 80, "https": 443}
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
_DIGITS = 15
"""What reading a stranger's JSON may raise: it is none, its bytes are no text, it is nested too deep."""

# In the order of telling most.
_SUBJECTS = "command pattern path file_path url query question name action goal task".split()  # noqa: SIM905


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
