"""List the settings by key, and parse and format their values.

The file, the environment, flags and `whet config set` all use `read_text`, so that a value means the same
everywhere. Help texts are the docstrings under the fields in `config/schema.py` and
`config/permission_settings.py`; they are read from the source when they are asked for.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from whet.config import permission_settings, schema
from whet.contract.forms import FORMS
from whet.contract.texts import from_json, from_values

Kind = Literal["text", "whole number", "number", "yes or no", "choice", "list", "table"]
Value = str | int | float | bool | tuple[str, ...]
"""The value of a setting. A table is the text of a JSON object, however the file writes it."""
_MAX_NUMBER = 10**12
"""The largest number: 30,000 years in seconds. Larger numbers fit neither a clock nor a database."""
_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Field(msgspec.Struct, frozen=True):
    """One setting, whose `key` is section.name.

    A number is from `minimum` to `maximum`. A text, or each item of a list, is one of the `choices` if there
    are any, and otherwise has the `form`.
    """

    key: str
    kind: Kind
    default: Value
    choices: tuple[str, ...] = ()
    minimum: float = 0
    form: str = ""
    maximum: float = _MAX_NUMBER

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return "WHET_" + self.key.replace(".", "_").upper()

    @property
    def allowed_text(self) -> str:
        """The allowed values, described for a person."""
        match self.kind:
            case "choice":
                return ", ".join(choice or "(empty)" for choice in self.choices)
            case "yes or no":
                return "true or false"
            case "whole number" | "number":
                bound = (
                    f"at least {self.minimum:g}"
                    if self.minimum >= 1 or self.kind == "whole number"
                    else ("more than 0" if self.minimum > 0 else "at least 0")
                )
                most = f", at most {self.maximum:g}" if self.maximum < _MAX_NUMBER else ""
                return f"a {self.kind}, {bound}{most}"
            case "list":
                items = ", ".join(self.choices) or (self.form and FORMS[self.form].allowed)
                return f"a list of: {items}" if items else "a list such as [a, b]"
            case "text" if self.form:
                return FORMS[self.form].allowed
            case "table":
                return "a table of named entries"
            case "text":
                return "text"

    def accepts(self, item: str) -> bool:
        """Return whether a text, or an item of the list, is allowed."""
        if self.choices:
            return item in self.choices
        return not self.form or bool(FORMS[self.form].is_valid(item))


@cache
def sections() -> dict[str, type[msgspec.Struct]]:
    """Return the sections of config.yaml in the schema's order."""
    return {field.name: field.type for field in msgspec.structs.fields(schema.Settings)}


@cache
def fields() -> dict[str, Field]:
    """Return every setting by key, in the schema's order."""
    by_key: dict[str, Field] = {}
    for section, struct in sections().items():
        for field in msgspec.structs.fields(struct):
            key = f"{section}.{field.name}"
            by_key[key] = _make_field(key, field.type, field.default)
    return by_key


def _make_field(key: str, kind: Any, default: Any) -> Field:
    minimum, maximum, form = 0.0, float(_MAX_NUMBER), ""
    if hasattr(kind, "__metadata__"):
        meta: msgspec.Meta = kind.__metadata__[0]
        minimum = float(meta.ge) if meta.ge is not None else float(meta.gt or 0) or 1e-9
        maximum = float(meta.le) if meta.le is not None else maximum
        form = str((meta.extra or {}).get("form", ""))
        kind = kind.__origin__
    simple: dict[Any, Kind] = {str: "text", int: "whole number", float: "number", bool: "yes or no"}
    if kind in simple:
        return Field(key, simple[kind], default, (), minimum, form, maximum)
    if get_origin(kind) is dict:
        return Field(key, "table", "{}")
    if get_origin(kind) is tuple:
        return Field(key, "list", default, _list_choices(get_args(kind)[0]), form=form)
    return Field(key, "choice", default, _list_choices(kind))


def _list_choices(kind: Any) -> tuple[str, ...]:
    """Return the values of a Literal or of a union of Literals, and none for other types."""
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for member in get_args(kind) for choice in _list_choices(member))
    return get_args(kind)


def read_text(field: Field, text: str) -> Value:
    """Parse one value. A list is separated by commas, or a JSON array if its items contain commas.

    Raises ValueError with the allowed values.
    """
    match field.kind:
        case "text" | "choice" if field.accepts(text) or not (text or field.default):
            return text
        case "list" if all(map(field.accepts, items := split_list(text))):
            return items
        case "table":
            return read_table(field, text)
        case "yes or no" if (boolean := _BOOLEANS.get(text.strip().lower())) is not None:
            return boolean
        case "whole number" | "number" if (number := _parse_number(field, text)) is not None:
            return number
        case _:
            raise ValueError(f"allowed: {field.allowed_text}")


def read_table(field: Field, text: str) -> str:
    """Check the text of a JSON object and return it reformatted. Raises ValueError that names a wrong
    entry."""
    section, _, name = field.key.partition(".")
    types = {field_info.name: field_info.type for field_info in msgspec.structs.fields(sections()[section])}
    entry_type: Any = get_args(types[name])[1]
    try:
        table = from_json(text, dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"allowed: {field.allowed_text}, as JSON") from error
    for entry_name, entry in table.items():
        try:
            from_values(entry, entry_type, strict=False)
        except msgspec.ValidationError as error:
            reason, _, position = str(error).replace("Object contains", "there is an").partition(" - at ")
            path = f"{entry_name}.{position.strip('`').removeprefix('$').strip('.')}".rstrip(".")
            raise ValueError(f"{path}: {reason[:1].lower()}{reason[1:]}") from error
    return msgspec.json.encode(table).decode()


def _parse_number(field: Field, text: str) -> float | int | None:
    try:
        number = int(text) if field.kind == "whole number" else float(text)
    except ValueError:
        return None
    return number if field.minimum <= number <= field.maximum else None


def split_list(text: str) -> tuple[str, ...]:
    """Parse a JSON array of texts, or split a text at commas.

    Commas in parentheses don't split, so that rules such as terminal(a, b) stay whole.
    """
    if text.lstrip().startswith("["):
        with contextlib.suppress(msgspec.DecodeError):
            return from_json(text, tuple[str, ...])
    items = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += char
    return tuple(item.strip() for item in items if item.strip())


def format_value(value: Value) -> str:
    """Format a value for a person, in the form that `whet config set` reads."""
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def find_nearest(word: str, candidates: Sequence[str]) -> str:
    """Return the candidate that is most similar to `word`, or "". A key's last part is compared too."""
    import difflib  # noqa: PLC0415 - 0.5 ms that only a wrong name needs

    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6 if "." in word else 0.7)
    if close:
        return close[0]
    tails = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
    close = difflib.get_close_matches(word.rpartition(".")[2], list(tails), n=1, cutoff=0.7)
    return tails[close[0]] if close else ""


@cache
def help_texts() -> dict[str, str]:
    """Return the docstring under each setting's field, or that of its section if there is none, by key."""
    nodes = [
        node for module in (permission_settings, schema) for node in ast.parse(inspect.getsource(module)).body
    ]
    by_class = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    texts: dict[str, str] = {}
    for section, struct in sections().items():
        node = by_class[struct.__name__]
        section_help = inspect.cleandoc(ast.get_docstring(node) or "")
        texts[section] = " ".join(section_help.split())
        for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                texts[f"{section}.{statement.target.id}"] = _read_docstring(following) or texts[section]
    return texts


def _read_docstring(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""
