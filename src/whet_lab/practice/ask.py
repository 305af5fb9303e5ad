"""The content of a request, independent of its wire format: the only input of the practice model.

The practice model is scripted, not a language model. A `PracticeRequest` is built from one request body
and nothing else, so everything that the practice model uses is provably in the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from whet.contract.messages import WireFormat
from whet.contract.texts import as_object, from_json

Json = dict[str, Any]

# Phrases with which Whet and other agents tell the model that a call was not allowed.
_REFUSALS = (
    "nobody was there to ask",
    "so nothing was run",
    "the person said no",
    "denied",
    "not approved",
    "refused by",
    "was not allowed",
    "no approver",
)


class PracticeCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call of a reply. `arguments` is JSON text, sent unchanged even if it is invalid.

    An empty `id` is replaced by call_N, where N continues the count of calls in the request.
    """

    name: str
    arguments: str = "{}"
    id: str = ""


class RequestMessage(msgspec.Struct, frozen=True):
    """One message of the request. A tool result has the id of its call."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[PracticeCall, ...] = ()
    call_id: str = ""


class Offer(msgspec.Struct, frozen=True):
    """A tool on offer and its JSON schema."""

    name: str
    parameters: Json

    @property
    def properties(self) -> dict[str, Json]:
        """The schema's properties by name."""
        value: object = self.parameters.get("properties")
        return as_object(value)


class CompletedCall(msgspec.Struct, frozen=True):
    """A call of the transcript with its result; `at` is the index of the result's message."""

    name: str
    arguments: Json
    result: str
    index: int

    def result_contains(self, *phrases: str) -> bool:
        """Return whether the result contains one of `phrases`, ignoring case."""
        low = self.result.lower()
        return any(phrase in low for phrase in phrases)

    @property
    def command(self) -> str:
        """The shell command of the call, or an empty string."""
        return str(self.arguments.get("command", ""))

    @property
    def first_line(self) -> str:
        """The first line of the result."""
        return next(iter(self.result.strip().splitlines()), "(no answer)")

    @property
    def is_denied(self) -> bool:
        """Whether a gate or a person refused the call."""
        return self.result_contains(*_REFUSALS)

    @property
    def is_interrupted(self) -> bool:
        """Whether it is unknown if the call took effect."""
        return self.result_contains("interrupted", "outcome unknown")


class PracticeRequest(msgspec.Struct, frozen=True, dict=True):
    """One request: system prompt, offered tools, messages, and whether thinking was requested."""

    wire: WireFormat
    model: str
    system: str
    offers: dict[str, Offer]
    messages: tuple[RequestMessage, ...]
    thinking: bool = False

    @cached_property
    def completed_calls(self) -> tuple[CompletedCall, ...]:
        """Every call that has a result, in the order of the results."""
        return tuple(self._pairs())

    def _pairs(self) -> Iterator[CompletedCall]:
        open_calls: dict[str, PracticeCall] = {}
        for at, message in enumerate(self.messages):
            open_calls.update((call.id, call) for call in message.calls)
            call = open_calls.get(message.call_id) if message.role == "tool" else None
            if call is not None:
                yield CompletedCall(call.name, parse_arguments(call), message.text, at)

    @property
    def last_user(self) -> str:
        """The text of the newest user message, or an empty string."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    def mentions(self, phrase: str, *, before: int | None = None) -> bool:
        """Return whether `phrase` occurs in the system prompt or in a message before index `before`."""
        return phrase in self.system or any(
            phrase in m.text or any(phrase in c.arguments for c in m.calls) for m in self.messages[:before]
        )


def parse_arguments(call: PracticeCall) -> Json:
    """Parse a call's arguments, or return an empty dict if they are not a JSON object."""
    try:
        return from_json(call.arguments, dict[str, Any])
    except msgspec.DecodeError:
        return {}
