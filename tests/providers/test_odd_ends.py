"""Why an answer ended, in each vendor's words: a fault is no answer, and an unknown reason is shown."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from tests.providers.server import Script, running
from tests.providers.test_link import HI, Waits, provider, reply, run
from tests.providers.test_odd_streams import WIRES, WORDS, chat, stream
from whet.contract.errors import ModelRefused
from whet.contract.protocols import ModelReply


def events(wire: str, reason: str) -> list[Any]:
    """An answer in a wire format that ends for this reason."""
    if wire == "chat_completions":
        return [chat({"content": "half"}), chat({}, finish_reason=reason), b"[DONE]"]
    if wire == "anthropic_messages":
        text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}
        end = {"type": "message_delta", "delta": {"stop_reason": reason}}
        return [{"type": "message_start", "message": {"model": "m"}}, text, end, {"type": "message_stop"}]
    response = {"model": "m", "status": "incomplete", "incomplete_details": {"reason": reason}}
    text = {"type": "response.output_text.delta", "delta": "half"}
    return [text, {"type": "response.incomplete", "response": response}]


async def _answer(wire: str, *answers: list[Any]) -> tuple[ModelReply, int]:
    async with (
        running(*(Script([stream(*answer)]) for answer in answers)) as server,
        aclosing(provider(server, waits=Waits(), format=wire)) as source,
    ):
        return await reply(source.open("sys", [], "s"), HI), len(server.requests)


@pytest.mark.fast_rows("chat_completions", "error-")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "reason", ["error", "network_error", "insufficient_system_resource", "abort", "MALFORMED_FUNCTION_CALL"]
)
def test_an_answer_that_a_fault_ended_is_asked_for_again(wire: str, reason: str) -> None:
    answer, requests = run(lambda: _answer(wire, events(wire, reason), WIRES[wire]()))
    assert (answer.message.text, requests, answer.warnings) == (WORDS, 2, ())


@pytest.mark.fast_rows("chat_completions", "length-")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "model_length", "max_output_tokens"])
def test_an_output_limit_in_any_vendors_words_is_one(wire: str, reason: str) -> None:
    answer, _ = run(lambda: _answer(wire, events(wire, reason)))
    assert (answer.message.text, answer.stop, answer.warnings) == ("half", "length", ())


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reason", ["content_filter", "SAFETY", "content_filter: RECITATION", "sensitive"])
def test_an_answer_withheld_in_any_vendors_words_is_refused(wire: str, reason: str) -> None:
    with pytest.raises(ModelRefused):
        run(lambda: _answer(wire, events(wire, reason)))


@pytest.mark.parametrize("wire", WIRES)
def test_an_unknown_reason_for_an_end_is_shown(wire: str) -> None:
    answer, _ = run(lambda: _answer(wire, events(wire, "new_reason")))
    assert (answer.message.text, answer.stop) == ("half", "end")
    assert answer.warnings == ("the model's server ended the answer with 'new_reason'; it may not be whole",)


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_a_response_that_was_cancelled_is_asked_for_again(status: str) -> None:
    end = {"type": "response.completed", "response": {"model": "m", "status": status}}
    half = [{"type": "response.output_text.delta", "delta": "half"}, end]
    answer, requests = run(lambda: _answer("responses", half, WIRES["responses"]()))
    assert (answer.message.text, requests) == (WORDS, 2)


def test_what_a_model_says_to_decline_is_told_from_its_finished_item_too() -> None:
    content = [{"type": "refusal", "refusal": "it names a private person"}]
    item = {"type": "message", "role": "assistant", "content": content}
    response = {"model": "m", "status": "completed", "output": [item]}
    for answer in (
        [{"type": "response.output_item.done", "item": item}, {"type": "response.completed"}],
        [{"type": "response.completed", "response": response}],
    ):
        with pytest.raises(ModelRefused, match="private person"):
            run(lambda answer=answer: _answer("responses", answer))
