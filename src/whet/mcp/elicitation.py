"""Ask the person the questions of an MCP server (elicitation): one question for each field of its form.

The texts are untrusted. They are shown without invisible characters, and each field that takes text has a
warning. Nothing is answered on the person's behalf: without an answer the form is cancelled, and only the
person declines it. Answers are checked against the form before they are sent. Source: MCP specification
2025-11-25 (client, elicitation), form mode.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from whet.contract.brought_text import unwrap_pastes
from whet.contract.texts import as_object, collect_texts
from whet.foreign_text import clean
from whet.typed_answer import AnswerOption, read_line
from whet.visible import WHOLE, visible

Ask = Callable[[str, Sequence[str]], Awaitable[str | None]]
"""Asks a question with answers to choose from. Returns None if nobody answers."""
DECLINE = "Decline to answer"
_AGREE = AnswerOption("agree")
EMPTY = "Leave it empty"
_MAX_FIELDS = 12
_MAX_CHOICES = 20
_TRIES = 3
_MAX_TEXT_CHARS = 4_000
_CANCEL: dict[str, Any] = {"action": "cancel"}
_DECLINED: dict[str, Any] = {"action": "decline"}


class _Declined(Exception):
    """Raised if the person declines to answer."""


class _NoAnswer(Exception):
    """Raised if no one answers, or no answer is valid."""


async def elicit(server: str, params: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
    """Ask the person the server's questions. Returns the result for the server: accept with the answers,
    decline or cancel."""
    schema = as_object(params.get("requestedSchema"))
    fields = as_object(schema.get("properties"))
    if params.get("mode", "form") != "form" or len(fields) > _MAX_FIELDS:
        return _CANCEL
    if max(map(len, (*collect_texts(dict(params)), *fields)), default=0) > _MAX_TEXT_CHARS:
        return _CANCEL  # the person is shown every text whole
    message = _clean_text(params.get("message")) or "(it does not say why)"
    head = f"The MCP server {server} asks: {message}"
    required: object = schema.get("required")
    required_names = cast("list[object]", required) if isinstance(required, list) else []
    try:
        if not fields:
            return {"action": "accept", "content": {}} if await _ask_agreement(head, ask) else _DECLINED
        content: dict[str, Any] = {}
        for number, (name, field) in enumerate(fields.items(), 1):
            form_field = _Field(name, as_object(field), name in required_names)
            position = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
            value = await form_field.ask_value(f"{head}{position}", ask)
            if value is not None:
                content[name] = value
    except _Declined:
        return _DECLINED
    except _NoAnswer:
        return _CANCEL
    return {"action": "accept", "content": content}


async def _ask_agreement(head: str, ask: Ask) -> bool:
    answer = await ask(head, ["Agree", DECLINE])
    if answer is None:
        raise _NoAnswer
    return read_line(answer, (_AGREE,)).option == _AGREE.name


class _Field:
    """One field of a form."""

    def __init__(self, name: str, schema: dict[str, Any], is_required: bool) -> None:
        self._name = name
        self._schema = schema
        self._is_required = is_required
        self._kind = str(schema.get("type") or "string")
        self._is_list = self._kind == "array"
        self._options = _read_options(as_object(schema.get("items")) if self._is_list else schema)

    async def ask_value(self, head: str, ask: Ask) -> object:
        """Ask until an answer is valid, at most three times. Returns its value, or None if the field is left
        empty. Raises _Declined, _NoAnswer."""
        problem = ""
        for _ in range(_TRIES):
            text = "\n".join(part for part in (head, self._describe(), problem) if part)
            answer = await ask(text, self._list_choices())
            if answer is None:
                raise _NoAnswer
            answer = unwrap_pastes(answer).strip()
            if answer == DECLINE:
                raise _Declined
            try:
                return self._parse_answer(answer)
            except ValueError as error:
                problem = f"That does not fit: {error}."
        raise _NoAnswer

    def _describe(self) -> str:
        label = _clean_text(self._schema.get("title")) or visible(self._name, WHOLE)
        description = _clean_text(self._schema.get("description"))
        kind = {"boolean": "yes or no", "integer": "a whole number", "number": "a number"}.get(self._kind, "")
        kind = "several, with commas between them" if self._is_list else kind
        notes = "; ".join(
            part for part in (description, kind, "" if self._is_required else "optional") if part
        )
        # Any text field may ask for a secret, whatever its label says, in any language.
        takes_text = self._kind not in ("boolean", "integer", "number") and not self._options
        warning = "\nThe server reads your answer: give servers no password or key this way."
        return f"{label}{f' ({notes})' if notes else ''}{warning if takes_text else ''}"

    def _list_choices(self) -> list[str]:
        choices = list(self._options)[:_MAX_CHOICES] if not self._is_list else []
        if self._kind == "boolean":
            choices = ["yes", "no"]
        default = self._default_text()
        if default:
            choices = [default, *(choice for choice in choices if choice != default)]
        empty = [] if self._is_required or default else [EMPTY]
        return [*choices, *empty, DECLINE]

    def _default_text(self) -> str:
        default: object = self._schema.get("default")
        if isinstance(default, bool):
            return "yes" if default else "no"
        if isinstance(default, list):
            return ", ".join(self._label(item) for item in cast("list[object]", default))
        return self._label(default) if isinstance(default, str | int | float) else ""

    def _label(self, value: object) -> str:
        for label, option_value in self._options.items():
            if option_value == value:
                return label
        return visible(str(value), WHOLE)

    def _parse_answer(self, answer: str) -> object:
        """Convert an answer to the form's type, or return None if it is empty. Raises ValueError."""
        default = self._default_text()
        if (not answer or answer == default) and "default" in self._schema:
            return cast("object", self._schema["default"])
        if not answer or answer == EMPTY:
            if self._is_required:
                raise ValueError("it has to be answered")
            return None
        if self._is_list:
            return [self._pick_option(part.strip()) for part in answer.split(",") if part.strip()]
        match self._kind:
            case "boolean":
                return _yes_or_no(answer)
            case "integer" | "number":
                return self._parse_number(answer)
            case _:
                return self._pick_option(answer) if self._options else self._check_text(answer)

    def _pick_option(self, answer: str) -> str:
        if not self._options:
            return answer
        folded = answer.casefold()
        for label, value in self._options.items():
            if folded in (label.casefold(), value.casefold()):
                return value
        raise ValueError(f"it is one of {', '.join(self._options)}")

    def _parse_number(self, answer: str) -> int | float:
        is_integer = self._kind == "integer"
        try:
            value = int(answer) if is_integer else float(answer.replace(",", "."))
        except ValueError as error:
            raise ValueError("it is not a whole number" if is_integer else "it is not a number") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("it is not a number")
        minimum, maximum = self._schema.get("minimum"), self._schema.get("maximum")
        if isinstance(minimum, int | float) and value < minimum:
            raise ValueError(f"it is at least {minimum:g}")
        if isinstance(maximum, int | float) and value > maximum:
            raise ValueError(f"it is at most {maximum:g}")
        return value

    def _check_text(self, answer: str) -> str:
        min_chars, max_chars = self._schema.get("minLength"), self._schema.get("maxLength")
        if isinstance(min_chars, int) and len(answer) < min_chars:
            raise ValueError(f"it has at least {min_chars} characters")
        if isinstance(max_chars, int) and len(answer) > max_chars:
            raise ValueError(f"it has at most {max_chars} characters")
        return answer


def _yes_or_no(answer: str) -> bool:
    if answer.lower() in ("yes", "y", "true", "1"):
        return True
    if answer.lower() in ("no", "n", "false", "0"):
        return False
    raise ValueError("it is yes or no")


def _read_options(schema: dict[str, Any]) -> dict[str, str]:
    """Return the values to choose from, by their labels, in any of the schema's forms."""
    options: dict[str, str] = {}
    for key in ("oneOf", "anyOf"):
        for row in _rows(schema.get(key)):
            fields = as_object(row)
            if isinstance(value := fields.get("const"), str):
                options[_clean_text(fields.get("title")) or visible(value, WHOLE)] = value
    for value, name in zip_longest(_rows(schema.get("enum")), _rows(schema.get("enumNames"))):
        if isinstance(value, str):
            options[_clean_text(name) or visible(value, WHOLE)] = value
    return options


def _rows(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _clean_text(value: object) -> str:
    return visible(" ".join(clean(value).split()), WHOLE) if isinstance(value, str) else ""
