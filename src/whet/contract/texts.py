"""Functions for JSON, texts and URLs that all layers share.

msgspec (0.22) publishes a struct's fields on the class before all of them are complete, so two threads that
use a type for the first time at once crash the process. Here, one lock guards the first use of every type.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast, overload
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from whet.late import late_pattern

T = TypeVar("T")
PORTS = {"http": 80, "https": 443}
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The exceptions of reading untrusted JSON: invalid JSON, bytes that are not text, or nesting that is too
deep."""
_MAX_DIGITS = 15
_MAX_URI_DEPTH = 4
_PARTS = late_pattern(r"""[^\s"'`\[\]{}()<>,;:=|]+""")
_ESCAPE = late_pattern(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)
CONTROL_SEQUENCE = r"(?:\x1b\[|\x9b(?=[0-?]))([0-?]*+)[ -/]*+([@-~])"
OTHER_ESCAPE = (
    r"\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*+(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x9d\d+;[^\x00-\x1f\x7f-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # OSC that begins with a C1 character
    r"|\x1b[ -/]*+[0-~]"  # two-character escapes
)
ESCAPES = late_pattern(rf"{CONTROL_SEQUENCE}|{OTHER_ESCAPE}")
"""Terminal escapes. Of a control sequence, group 1 holds the parameters and group 2 the final character."""
SUSPECT = late_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""The characters that `clean` removes or replaces, and those with which an escape begins."""
_CONTROLS = late_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATES = late_pattern("[\ud800-\udfff]")
_lock = threading.RLock()
_decoders: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}

# The names of arguments that can be a call's subject, the most informative first.
_SUBJECTS = "command pattern path file_path url query question name action goal task".split()  # noqa: SIM905


@overload
def shared_decoder(kind: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]: ...
@overload
def shared_decoder(kind: object, *, strict: bool = True) -> msgspec.json.Decoder[Any]: ...
def shared_decoder(kind: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """Return the shared decoder of a type. If `strict` is False, the text "7" is accepted as a number."""
    cached = _decoders.get((kind, strict))
    if cached is None:
        with _lock:
            cached = _decoders.setdefault((kind, strict), msgspec.json.Decoder(kind, strict=strict))
    return cached


def from_json(data: bytes | bytearray | memoryview | str, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON as `kind`. Raises the exceptions in `NOT_JSON`, also if the JSON does not match `kind`."""
    return shared_decoder(kind, strict=strict).decode(data)


def from_foreign_json(data: bytes | str, kind: type[T], *, strict: bool = True) -> T:
    """Read another program's JSON as `from_json` does, with � in place of lone surrogates.

    JavaScript writes lone surrogates if a text was cut inside an emoji.
    """
    try:
        return from_json(data, kind, strict=strict)
    except (msgspec.DecodeError, UnicodeError):
        raw = replace_surrogates(data).encode() if isinstance(data, str) else data
        repaired = replace_escaped_surrogates(raw)
        if repaired == data:
            raise
    return from_json(repaired, kind, strict=strict)


def replace_escaped_surrogates(data: bytes) -> bytes:
    """Return JSON with � in place of escaped lone surrogates, which the decoder refuses."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], data)


def mark_as_model_question(question: str) -> str:
    """Return a model's question with a prefix that names its author. Several lines are quoted, so that none
    can imitate a question of Whet's."""
    lines = question.splitlines()
    if len(lines) == 1:
        return f"The assistant asks: {question}"
    return "\n".join(("The assistant asks:", *(f"> {line}" for line in lines)))


def to_json(value: object) -> str:
    """Return a value as JSON, on one line."""
    return msgspec.json.encode(value).decode()


def from_values(
    value: Any, kind: type[T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> T:
    """Convert a value of dicts, lists and texts to `kind`. `dec_hook` converts to types that msgspec doesn't
    support. Raises msgspec.ValidationError."""
    with _lock:
        return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)


def as_object(value: object) -> dict[str, Any]:
    """Return a decoded JSON object, or an empty dict for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def flat(text: str) -> str:
    """Return a text on one line, with single spaces."""
    return " ".join(text.split())


def short(text: str, limit: int = 80) -> str:
    """Return a text on one line, cut to `limit` characters, the last of them "…"."""
    text = flat(text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def join_names(names: Iterable[str]) -> str:
    """Join names with commas and "and". Raises ValueError if there are none."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: "1 file", "2,000 files". `nouns` is an irregular plural."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the arguments of a tool call, or return an empty dict if they are not a JSON object."""
    try:
        return from_json(text or "{}", dict[str, Any])
    except NOT_JSON:
        return {}


def is_object(text: str) -> bool:
    """Return whether `text` is one complete JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        from_json(text, dict[str, Any])
    except NOT_JSON:
        return False
    return True


def subject_of(arguments: Mapping[str, object]) -> str:
    """Return the subject of a tool call: its most informative text argument, or "" if it has none. For a
    search, the pattern and the path; for a command in another folder, the folder and the command."""
    pattern, path = arguments.get("pattern"), arguments.get("path")
    if isinstance(pattern, str) and isinstance(path, str) and pattern and path not in ("", "."):
        return f"{pattern}  in {path}"
    command, folder = arguments.get("command"), arguments.get("workdir")
    if isinstance(command, str) and isinstance(folder, str) and command and folder not in ("", "."):
        return f"in {folder}: {command}"
    for name in _SUBJECTS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def call_subject(arguments: str) -> str:
    """Return a call's subject from its JSON arguments, else its first text argument. Invalid JSON is returned
    unchanged."""
    try:
        values = from_json(arguments or "{}", dict[str, object])
    except NOT_JSON:
        return arguments
    return subject_of(values) or next((value for value in values.values() if isinstance(value, str)), "")


def argument_texts(arguments: str) -> list[tuple[str, str]]:
    """Return a call's arguments by name, each as text. Invalid JSON is one argument."""
    try:
        values = from_json(arguments or "{}", dict[str, object])
    except NOT_JSON:
        return [("arguments", arguments)]
    return [(name, argument_text(value)) for name, value in values.items()]


def argument_text(value: object) -> str:
    """Return the value of an argument: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else to_json(value)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with `change` applied to every text in it, except keys. Tuples become lists."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    return value


def encode_output(value: object) -> bytes:
    """Return the value as JSON that leaves the program, with rounded amounts."""
    return msgspec.json.encode(round_amounts(msgspec.to_builtins(value, str_keys=True)))


def round_amounts(value: Any) -> Any:
    """Return the value with each float under a key that ends with `usd` rounded to 10 significant digits.
    Sums of floats end with digits that are only rounding errors."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            key: round_amount(item)
            if isinstance(item, float) and str(key).endswith("usd")
            else round_amounts(item)
            for key, item in items
        }
    if isinstance(value, list | tuple):
        return [round_amounts(item) for item in cast("list[Any]", value)]
    return value


def round_amount(usd: float) -> float:
    """Return an amount rounded to 10 significant digits."""
    return float(f"{usd:.10g}")


def parse_typed_number(text: str) -> int | None:
    """Parse a whole number that a person typed. Returns None for anything else, or if it is too large."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def replace_surrogates(text: str) -> str:
    """Return the text with � in place of lone surrogates, which can't be encoded."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def collect_texts(value: Any) -> list[str]:
    """Return every text in a JSON-like value, without keys, in order."""
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()  # pyright: ignore[reportUnknownVariableType] JSON of any shape
    return [text for item in items for text in collect_texts(item)]  # pyright: ignore[reportUnknownVariableType]


def iterate_texts_and_keys(value: Any) -> Iterator[str]:
    """Yield every text and key in a JSON-like value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value:  # pyright: ignore[reportUnknownVariableType] JSON of any shape
            yield from iterate_texts_and_keys(item)
        for item in value.values() if isinstance(value, dict) else ():  # pyright: ignore[reportUnknownVariableType]
            yield from iterate_texts_and_keys(item)


def split_http_url(url: str) -> SplitResult | None:
    """Split a URL. Returns None if it is not an http(s) URL."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, or an invalid port
        return None
    return parts if is_usable else None


def paths_in_uri(uri: str) -> list[str]:
    """Return the file paths that a text may refer to: the text itself and, if it is a URI, the paths in it.

    Searches the URI's path, query and fragment, and URIs, JSON and lists nested in these. Of the paths in an
    http(s) URL, only absolute ones of existing files are returned.
    """
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        scheme = ""
    paths, latest = {uri: None}, [uri]
    for _ in range(_MAX_URI_DEPTH):
        inner = dict.fromkeys(name for text in latest for name in _list_inner(text) if name)
        latest = [name for name in inner if name not in paths]
        paths.update(dict.fromkeys(latest))
    if scheme in PORTS:
        return [uri, *(path for path in paths if path.startswith("/") and os.path.exists(path))]
    return list(paths)


def _list_inner(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be paths. Reads it as URI, JSON and list, one level deep."""
    yield from _list_parts(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    path = unquote(parts.path)
    yield path
    if parts.netloc and parts.scheme not in ("file", *PORTS):
        yield f"{unquote(parts.netloc)}{path}".lstrip("/")
    yield path.lstrip("/")  # a URI in the path
    for part in filter(None, (parts.query, parts.fragment)):
        fields = re.split("[&;]", part)
        yield from (unquote(name) for name in (part, *fields, *(item.partition("=")[2] for item in fields)))


def _list_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between punctuation and, if it is JSON, the texts and keys in it.

    Yields nothing if the text contains blanks and does not begin like JSON.
    """
    if not text.startswith(("{", "[", '"')) and any(map(str.isspace, text)):
        return
    yield from (part for part in _PARTS.findall(text) if part != text)
    try:
        yield from iterate_texts_and_keys(from_json(text, object))
    except NOT_JSON:
        return


def strip_credentials(url: str) -> str:
    """Return a URL without its user name and password. The URL may be invalid."""
    scheme, mark, address = url.partition("://")
    return scheme + mark + address.rpartition("@")[2] if mark else url


def clean(text: str) -> str:
    """Return `text` without terminal escapes and control characters. Tab and newline stay.

    CRLF and single carriage returns become newlines. Lone surrogates become U+FFFD.
    """
    if not SUSPECT.search(text):
        return text
    text = ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))
