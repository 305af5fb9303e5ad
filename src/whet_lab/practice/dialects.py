"""The three wire formats behind one interface: validation, parsing, token counting and writing.

The server uses a `PracticeDialect` and never a vendor's module. The practice model is scripted, not a
language model.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from whet.contract.messages import WireFormat
from whet_lab.practice import (
    chat_rules,
    chat_wire,
    messages_rules,
    messages_wire,
    responses_rules,
    responses_wire,
)
from whet_lab.practice.ask import Json, PracticeRequest
from whet_lab.practice.cache import PrefixCache, TokenTally
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.strict import Options, VendorRefusal, anthropic_error, check_openai_key, openai_error
from whet_lab.practice.wire import AnswerEnvelope

_THOUGHT_LIMIT = 10_000


class PracticeDialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format. The fields that begin with `check` raise VendorRefusal."""

    format: WireFormat
    check_headers: Callable[[Mapping[str, str], Options], None]
    """Rejects a wrong key or a missing header."""
    check: Callable[[Json, Options], None]
    """Rejects a body that the vendor rejects."""
    read: Callable[[Json], PracticeRequest]
    """Returns the conversation of a valid body."""
    count: Callable[[Json, PrefixCache], TokenTally]
    """Counts the prompt's tokens and stores its prefixes."""
    check_window: Callable[[int, Json, int], None]
    """Rejects a prompt whose number of tokens exceeds the window; also gets the body and the window."""
    whole: Callable[[ScriptedReply, AnswerEnvelope], Json]
    """Returns the body of an answer that is not streamed."""
    stream: Callable[[ScriptedReply, AnswerEnvelope], list[bytes]]
    """Returns an answer as events."""
    error: Callable[[VendorRefusal], Json]
    """Returns the body of an error."""
    error_event: Callable[[Json], bytes]
    """Returns an error as an event of a stream."""


def chat_completions() -> PracticeDialect:
    """Return the dialect of OpenAI Chat Completions, with an automatic prefix cache."""
    return PracticeDialect(
        format="chat_completions",
        check_headers=check_openai_key,
        check=chat_rules.check,
        read=chat_wire.parse_request,
        count=lambda body, cache: cache.count_automatic(body["model"], chat_wire.list_cache_blocks(body)),
        check_window=_check_chat_window,
        whole=chat_wire.build_body,
        stream=chat_wire.stream,
        error=_openai_error,
        error_event=chat_wire.error_event,
    )


def responses(seed: int) -> PracticeDialect:
    """Return the dialect of OpenAI Responses. `seed` seals its reasoning.

    Keys, counting and errors are the same as for Chat Completions.
    """

    def is_sealed(item_id: str, sealed: str) -> bool:
        return hmac.compare_digest(responses_wire.seal(item_id, seed), sealed)

    return PracticeDialect(
        format="responses",
        check_headers=check_openai_key,
        check=partial(responses_rules.check, verify=is_sealed),
        read=responses_wire.read,
        count=lambda body, cache: cache.count_automatic(body["model"], responses_wire.blocks(body)),
        check_window=_check_responses_window,
        whole=partial(responses_wire.whole, seed=seed),
        stream=partial(responses_wire.stream, seed=seed),
        error=_openai_error,
        error_event=responses_wire.error_event,
    )


def messages(seed: int) -> PracticeDialect:
    """Return the dialect of Anthropic Messages, with a cache by marks. `seed` signs its thinking.

    It remembers the calls that were sent together with thinking, at most 10,000.
    """
    thinking_calls: dict[str, None] = {}

    def is_signed(thinking: str, signature: str) -> bool:
        return hmac.compare_digest(messages_wire.sign(thinking, seed), signature)

    def check(body: Json, options: Options) -> None:
        messages_rules.check(body, options, is_signed)
        messages_rules.check_lost_thinking(body, thinking_calls)

    def remember_thinking(reply: ScriptedReply) -> ScriptedReply:
        for call in reply.tool_calls:
            thinking_calls.pop(call.id, None)
            if reply.reasoning:
                thinking_calls[call.id] = None
        if len(thinking_calls) > _THOUGHT_LIMIT:
            for call_id in list(thinking_calls)[: -_THOUGHT_LIMIT // 2]:
                del thinking_calls[call_id]
        return reply

    return PracticeDialect(
        format="anthropic_messages",
        check_headers=messages_rules.check_headers,
        check=check,
        read=messages_wire.read,
        count=lambda body, cache: cache.count_marked(body["model"], messages_wire.blocks(body)),
        check_window=_check_messages_window,
        whole=lambda reply, envelope: messages_wire.whole(remember_thinking(reply), envelope, seed),
        stream=lambda reply, envelope: messages_wire.stream(remember_thinking(reply), envelope, seed),
        error=lambda refusal: anthropic_error(refusal.status, refusal.message, kind=refusal.code or ""),
        error_event=messages_wire.error_event,
    )


def _openai_error(refusal: VendorRefusal) -> Json:
    return openai_error(refusal.status, refusal.message, param=refusal.param, code=refusal.code)


def _check_chat_window(prompt_tokens: int, body: Json, limit: int) -> None:
    if prompt_tokens > limit:
        raise VendorRefusal(
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
            f"{prompt_tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


def _check_responses_window(prompt_tokens: int, body: Json, limit: int) -> None:
    if prompt_tokens > limit:
        raise VendorRefusal(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code="context_length_exceeded",
        )


def _check_messages_window(prompt_tokens: int, body: Json, limit: int) -> None:
    """Reject a prompt that is too long, alone or together with max_tokens."""
    if prompt_tokens > limit:
        raise VendorRefusal(f"prompt is too long: {prompt_tokens} tokens > {limit} maximum")
    if prompt_tokens + body["max_tokens"] > limit:
        raise VendorRefusal(
            f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {body['max_tokens']} >"
            f" {limit}, decrease input length or `max_tokens` and try again"
        )
