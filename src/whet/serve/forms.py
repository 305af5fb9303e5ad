"""The required form of an answer: JSON that matches a schema, and texts that end the answer.

Any model can be used: the form is described to it in words, its answer is checked, and it is asked once more
if the answer does not match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from whet.contract.answers import find_mismatch, find_schema_fault
from whet.contract.events import StepFinished, StreamRestarted, TextDelta
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_MAX_STOPS, _MAX_STOP_CHARS = 16, 1_000


class AnswerForm(msgspec.Struct, frozen=True):
    """An answer in JSON. `schema` is its JSON Schema, or None for any object."""

    schema: dict[str, Any] | None

    @property
    def instructions(self) -> str:
        """The instructions to the model."""
        if self.schema is None:
            return "Your final answer must be one JSON object and nothing else: no words around it, no fence."
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return (
            "Your final answer must be one JSON value that fits this JSON Schema, and nothing else: no words"
            f" around it, no fence.\n{text}"
        )

    def read(self, text: str) -> str:
        """Return the JSON in an answer. Raises ValueError with the reason if it does not have the form."""
        fenced = _FENCE.search(text)
        json_text = (fenced[1] if fenced else text).strip()
        try:
            value: object = json.loads(json_text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if self.schema is None and not json_text.startswith("{"):
            raise ValueError("it is not a JSON object")
        if self.schema is not None and (problem := find_mismatch(value, self.schema)):
            raise ValueError(problem)
        return json_text


def read_answer_form(kind: object, schema: object, param: str) -> AnswerForm | None:
    """Return the form that a request names, or None for text. Raises ApiError."""
    if kind == "text":
        return None
    if kind == "json_object":
        return AnswerForm(None)
    if kind != "json_schema":
        raise ApiError(400, "answers are text or JSON", param=param, code="unsupported_value")
    if not isinstance(schema, dict):
        raise ApiError(400, "a JSON format needs a schema", param=param, code="invalid_value")
    json_schema = cast("dict[str, Any]", schema)
    if problem := find_schema_fault(json_schema):
        raise ApiError(400, f"this is not a JSON Schema: {problem}", param=param, code="invalid_json_schema")
    return AnswerForm(json_schema)


def read_stop_texts(value: object, param: str) -> tuple[str, ...]:
    """Return the texts that end an answer. Raises ApiError."""
    listed: list[object] = [] if value is None else [value] if isinstance(value, str) else []
    if isinstance(value, list):
        listed = cast("list[object]", value)
    elif value is not None and not listed:
        raise ApiError(400, "stop must be text or a list of texts", param=param)
    stops = tuple(item for item in listed if isinstance(item, str) and 0 < len(item) <= _MAX_STOP_CHARS)
    if len(stops) != len(listed) or len(stops) > _MAX_STOPS:
        message = f"at most {_MAX_STOPS} texts may end an answer, of 1 to {_MAX_STOP_CHARS:,} characters each"
        raise ApiError(400, message, param=param)
    return stops


class AnswerFilter:
    """Filters the events between a turn and its codec.

    With a form, text is kept back until the last step is complete. With stop texts, text that may begin one
    is kept back. When one is complete, it is stored in `found_stop`, and `stop` is called.
    """

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
        self.found_stop: str = ""

    def event(self, event: ApiEvent) -> None:
        """Process an event of the turn."""
        if isinstance(event, TextDelta) and (self._form or self._stops):
            self._add_text(event.text)
            return
        if isinstance(event, StreamRestarted):
            self._kept = ""
        elif self._form is not None:
            self._is_step_over = self._is_step_over or isinstance(event, StepFinished)
        elif isinstance(event, StepFinished):
            self.flush()
        self._emit(event)

    def flush(self) -> None:
        """Emit the text that was kept back for stop texts."""
        if self._kept and not self.found_stop and self._form is None:
            self._emit(TextDelta(self._kept))
        if self._form is None:
            self._kept = ""

    def finish(self, form: AnswerForm) -> None:
        """Emit the answer. Raises ValueError if it does not have the form."""
        text = form.read(self._kept)
        self._emit(TextDelta(text))

    def reset(self) -> None:
        """Drop the text so far, because the model is asked once more."""
        self._kept, self._is_step_over = "", False

    def _add_text(self, text: str) -> None:
        if self.found_stop:
            return
        if self._form is not None:
            self._kept = text if self._is_step_over else self._kept + text
            self._is_step_over = False
            return
        text = self._kept + text
        matches = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if matches:
            at, self.found_stop = min(matches)
            self._kept = ""
            if at:
                self._emit(TextDelta(text[:at]))
            self._stop()
            return
        kept_chars = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._kept = text[len(text) - kept_chars :]
        if len(text) > kept_chars:
            self._emit(TextDelta(text[: len(text) - kept_chars]))


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last characters of `text` are the beginning of `stop`."""
    return max(n for n in range(len(stop)) if text.endswith(stop[:n]))
