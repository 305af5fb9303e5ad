"""A turn's events in OpenAI's shapes: what a broken stream began is no part of a whole answer."""

from __future__ import annotations

from typing import Any

import pytest

from whet.contract.events import StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import Usage
from whet.serve.chat import RESTARTED, ChatCodec
from whet.serve.responses import ResponsesCodec, ResponsesRequest

EVENTS = (
    TextDelta("First step."),
    StepFinished(1, Usage()),
    TextDelta("Half an ans"),
    StreamRestarted("it broke"),
    TextDelta("The whole answer."),
    StepFinished(2, Usage()),
)
END = TurnEnd("s", "t", "answered", "The whole answer.", 2, Usage(), 0.1)


def _said(response: Any) -> list[str]:
    return [part["text"] for item in response["output"] for part in item["content"]]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_holds_what_broke_off_only_where_it_was_streamed(is_stream: bool) -> None:
    codec = ResponsesCodec("resp_1", ResponsesRequest("whet", "q", stream=is_stream))
    sent = b"".join(codec.event(event) for event in EVENTS)
    last = f"Half an ans{RESTARTED}The whole answer." if is_stream else "The whole answer."
    assert _said(codec.whole(END)) == ["First step.", last]
    assert (b"begins again" in sent) is is_stream


def test_a_whole_completion_holds_nothing_of_what_broke_off() -> None:
    codec: Any = ChatCodec("1", "whet")
    for event in EVENTS:
        codec.event(event)
    assert codec.whole(END)["choices"][0]["message"]["content"] == "First step.\n\nThe whole answer."
