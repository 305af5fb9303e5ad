"""What a request says, whichever wire format it came in: all that the practice brain gets to see.

The practice model is a scripted stand-in, not a language model. A `PracticeRequest` is made from one request
body and nothing else, so that whatever the stand-in "knows" is provably in the request. This module does not
know about HTTP, nor about any vendor's shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, cast

import msgspec

from whet.contract.messages import WireFormat
from whet.contract.texts import from_json

Json = dict[str, Any]

# What gates say, Whet's and others', when a call was not let through.
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
    """One tool call of a reply. `arguments` is JSON text, sent as it stands even when it is broken.

    An empty `id` is replaced by call_N, where N goes on from the calls in the request.
    """

    name: str
    arguments: str = "{}"
    id: str = ""


class HeardMessage(msgspec.Struct, frozen=True):
    """One message of the request. A tool's result has its call's id."""

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
        found: object = self.parameters.get("properties")
        return cast("dict[str, Json]", found) if isinstance(found, dict) else {}


class DoneCall(msgspec.Struct, frozen=True):
    """A call of the transcript together with its result; `at` is the index of the result's message."""

    name: str
    arguments: Json
    result: str
    at: int

    def said(self, *phrases: str) -> bool:
        """Whether the result holds one of `phrases`, case ignored."""
        low = self.result.lower()
        return any(phrase in low for phrase in phrases)

    @property
    def denied(self) -> bool:
        """Whether the gate or a person refused the call."""
        return self.said(*_REFUSALS)

    @property
    def interrupted(self) -> bool:
        """Whether nobody knows if the call took effect."""
        return self.said("interrupted", "outcome unknown")


class PracticeRequest(msgspec.Struct, frozen=True, dict=True):
    """One request: system prompt, tools on offer, messages, and whether thinking was asked for."""

    wire: WireFormat
    model: str
    system: str
    offers: dict[str, Offer]
    heard: tuple[HeardMessage, ...]
    thinking: bool = False

    @cached_property
    def done(self) -> tuple[DoneCall, ...]:
        """Every answered call, in the order of the results."""
        return tuple(self._pairs())

    def _pairs(self) -> Iterator[DoneCall]:
        open_calls: dict[str, PracticeCall] = {}
        for at, message in enumerate(self.heard):
            open_calls.update((call.id, call) for call in message.calls)
            call = open_calls.get(message.call_id) if message.role == "tool" else None
            if call is not None:
                yield DoneCall(call.name, arguments_of(call), message.text, at)

    @property
    def last_user(self) -> str:
        """The newest user message's text; empty where there is none."""
        return next((m.text for m in reversed(self.heard) if m.role == "user"), "")

    def knows(self, phrase: str, *, before: int | None = None) -> bool:
        """Whether `phrase` stands in the system prompt or in a message before index `before`."""
        return phrase in self.system or any(
            phrase in m.text or any(phrase in c.arguments for c in m.calls) for m in self.heard[:before]
        )


def arguments_of(call: PracticeCall) -> Json:
    """Parse a call's arguments; what is no JSON object gives an empty one."""
    try:
        return from_json(call.arguments, dict[str, Any])
    except msgspec.DecodeError:
        return {}
