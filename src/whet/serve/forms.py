"""The form of an answer: JSON that fits a schema, and texts that end it. Knows no client's shape.

Whatever model answers, it is told the form in words, what it says is checked, and it is asked once more where
that does not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from whet.contract.events import StepFinished, StreamRestarted, TextDelta
from whet.contract.tools import is_json_type
from whet.serve.held import ApiEvent
from whet.serve.wire import ApiError

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_MOST_STOPS, _MOST_STOP_CHARS = 16, 1_000


class AnswerForm(msgspec.Struct, frozen=True):
    """JSON; `schema` None for any object."""

    schema: dict[str, Any] | None

    @property
    def told(self) -> str:
        """What the model is told."""
        if self.schema is None:
            return "Your final answer must be one JSON object and nothing else: no words around it, no fence."
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return (
            "Your final answer must be one JSON value that fits this JSON Schema, and nothing else: no words"
            f" around it, no fence.\n{text}"
        )

    def read(self, text: str) -> str:
        """Give the JSON in an answer. Raises ValueError that says what does not fit."""
        fenced = _FENCE.search(text)
        found = (fenced[1] if fenced else text).strip()
        try:
            value: object = json.loads(found)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if self.schema is None and not found.startswith("{"):
            raise ValueError("it is not a JSON object")
        if self.schema is not None and (problem := misfit(value, self.schema, self.schema, "$")):
            raise ValueError(problem)
        return found


def form_of(kind: object, schema: object, param: str) -> AnswerForm | None:
    """Give the form that a request names; None for text. Raises ApiError."""
    if kind == "text":
        return None
    if kind == "json_object":
        return AnswerForm(None)
    if kind != "json_schema":
        raise ApiError(400, "answers are text or JSON", param=param, code="unsupported_value")
    if not isinstance(schema, dict):
        raise ApiError(400, "a JSON format needs a schema", param=param, code="invalid_value")
    return AnswerForm(cast("dict[str, Any]", schema))


def stops_of(given: object, param: str) -> tuple[str, ...]:
    """Give the texts that end an answer. Raises ApiError."""
    listed: list[object] = [] if given is None else [given] if isinstance(given, str) else []
    if isinstance(given, list):
        listed = cast("list[object]", given)
    elif given is not None and not listed:
        raise ApiError(400, "stop must be text or a list of texts", param=param)
    stops = tuple(one for one in listed if isinstance(one, str) and 0 < len(one) <= _MOST_STOP_CHARS)
    if len(stops) != len(listed) or len(stops) > _MOST_STOPS:
        what = f"at most {_MOST_STOPS} texts may end an answer, of 1 to {_MOST_STOP_CHARS:,} characters each"
        raise ApiError(400, what, param=param)
    return stops


class Shaping:
    """Stands between a turn and its codec. With a form, text is kept back until the last step is whole; with
    stops, what may be the beginning of one is, and `stop` is called when one is there."""

    def __init__(
        self,
        emit: Callable[[ApiEvent], None],
        form: AnswerForm | None,
        stops: tuple[str, ...],
        stop: Callable[[], None],
    ) -> None:
        self._emit = emit
        self._form = form
        self._stops = stops
        self._stop = stop
        self._kept: str = ""
        self._is_step_over = False
        self.found: str = ""

    def event(self, event: ApiEvent) -> None:
        """Take an event of the turn."""
        if isinstance(event, TextDelta) and (self._form or self._stops):
            self._text(event.text)
            return
        if isinstance(event, StreamRestarted):
            self._kept = ""
        elif self._form is not None:
            self._is_step_over = self._is_step_over or isinstance(event, StepFinished)
        elif isinstance(event, StepFinished):
            self.flush()
        self._emit(event)

    def flush(self) -> None:
        """Let go what was kept back for stops."""
        if self._kept and not self.found and self._form is None:
            self._emit(TextDelta(self._kept))
        if self._form is None:
            self._kept = ""

    def finish(self, form: AnswerForm) -> None:
        """Let the answer go if it is in its form. Raises ValueError where it is not."""
        text = form.read(self._kept)
        self._emit(TextDelta(text))

    def again(self) -> None:
        """Forget what was said: the model is asked once more."""
        self._kept, self._is_step_over = "", False

    def _text(self, text: str) -> None:
        if self.found:
            return
        if self._form is not None:
            self._kept = text if self._is_step_over else self._kept + text
            self._is_step_over = False
            return
        text = self._kept + text
        places = [(at, one) for one in self._stops if (at := text.find(one)) >= 0]
        if places:
            at, self.found = min(places)
            self._kept = ""
            if at:
                self._emit(TextDelta(text[:at]))
            self._stop()
            return
        kept = max((_overlap(text, one) for one in self._stops), default=0)
        self._kept = text[len(text) - kept :]
        if len(text) > kept:
            self._emit(TextDelta(text[: len(text) - kept]))


def _overlap(text: str, stop: str) -> int:
    """Give how many of the last characters may be the beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def misfit(value: object, schema: object, root: dict[str, Any], where: str, depth: int = 0) -> str:
    """Say what of a value does not fit a schema; empty where it fits. The keywords that the vendors' own JSON
    answers know are checked; others are left to the client."""
    if not isinstance(schema, dict) or depth > 100:
        return f"{where} is not allowed" if schema is False else ""
    rules = cast("dict[str, Any]", schema)
    reference: object = rules.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return misfit(value, _pointed(root, reference), root, where, depth + 1)
    return (
        _of_kind(value, rules, where)
        or _of_several(value, rules, root, where, depth)
        or _of_parts(value, rules, root, where, depth)
    )


def _of_kind(value: object, rules: dict[str, Any], where: str) -> str:
    kinds: Any = rules.get("type", [])
    listed: list[str] = [kinds] if isinstance(kinds, str) else kinds
    if listed and not any(is_json_type(kind, value) for kind in listed):
        return f"{where} must be of type {' or '.join(listed)}"
    if "enum" in rules and value not in rules["enum"]:
        return f"{where} must be one of {json.dumps(rules['enum'], ensure_ascii=False)[:300]}"
    if "const" in rules and value != rules["const"]:
        return f"{where} must be {json.dumps(rules['const'], ensure_ascii=False)[:300]}"
    if isinstance(value, str) and len(value) < rules.get("minLength", 0):
        return f"{where} is too short"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = rules.get("minimum", value), rules.get("maximum", value)
        return "" if low <= value <= high else f"{where} is out of its range"
    return ""


def _of_several(value: object, rules: dict[str, Any], root: dict[str, Any], where: str, depth: int) -> str:
    for one in rules.get("allOf", ()):
        if problem := misfit(value, one, root, where, depth + 1):
            return problem
    choices: list[object] = rules.get("anyOf") or rules.get("oneOf") or []
    problems = [misfit(value, one, root, where, depth + 1) for one in choices]
    return f"{where} fits none of its forms ({problems[0]})" if problems and all(problems) else ""


def _of_parts(value: object, rules: dict[str, Any], root: dict[str, Any], where: str, depth: int) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not rules.get("minItems", 0) <= len(items) <= rules.get("maxItems", len(items)):
            return f"{where} has {len(items)} items"
        found = (
            misfit(one, rules.get("items"), root, f"{where}[{number}]", depth + 1)
            for number, one in enumerate(items)
        )
        return next((problem for problem in found if problem), "")
    if not isinstance(value, dict):
        return ""
    fields, known = cast("dict[str, object]", value), cast("dict[str, Any]", rules.get("properties") or {})
    for name in rules.get("required", ()):
        if name not in fields:
            return f"{where}.{name} is missing"
    for name, one in fields.items():
        rule: object = known.get(name, rules.get("additionalProperties"))
        if problem := misfit(one, rule, root, f"{where}.{name}", depth + 1):
            return problem
    return ""


def _pointed(root: dict[str, Any], reference: str) -> object:
    found: object = root
    for name in reference.lstrip("#").split("/")[1:]:
        if not isinstance(found, dict):
            return None
        found = cast("dict[str, object]", found).get(name.replace("~1", "/").replace("~0", "~"))
    return found
