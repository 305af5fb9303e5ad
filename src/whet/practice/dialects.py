"""The three wire formats side by side: each one's rules, reading, counting and writing under the same names.

The server asks a `PracticeDialect` and never a vendor's module. The practice model is a scripted stand-in,
not a language model.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Protocol

from whet.contract.messages import WireFormat
from whet.practice import (
    chat_rules,
    chat_wire,
    messages_rules,
    messages_wire,
    responses_rules,
    responses_wire,
)
from whet.practice.ask import Json, PracticeRequest
from whet.practice.cache import PrefixCache, TokenTally
from whet.practice.script import ScriptedReply
from whet.practice.strict import Options, VendorRefusal, anthropic_error, check_openai_key, openai_error
from whet.practice.wire import AnswerEnvelope

_THOUGHT_LIMIT = 10_000


class PracticeDialect(Protocol):
    """One wire format. `check` and `check_headers` raise Refusal."""

    @property
    def format(self) -> WireFormat:
        """The format's name."""
        ...

    def check_headers(self, headers: Mapping[str, str], options: Options) -> None:
        """Refuse a wrong key or a missing header."""
        ...

    def check(self, body: Json, options: Options) -> None:
        """Refuse what the vendor refuses."""
        ...

    def read(self, body: Json) -> PracticeRequest:
        """Take the conversation out of a valid body."""
        ...

    def count(self, body: Json, cache: PrefixCache) -> TokenTally:
        """Count the prompt's tokens and remember its prefixes."""
        ...

    def check_window(self, prompt_tokens: int, body: Json, limit: int) -> None:
        """Refuse a prompt that passes the window of `limit` tokens."""
        ...

    def whole(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> Json:
        """Write an answer in one piece."""
        ...

    def stream(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> list[bytes]:
        """Write an answer as events."""
        ...

    def error(self, refusal: VendorRefusal) -> Json:
        """Write an error's body."""
        ...

    def error_event(self, error: Json) -> bytes:
        """Write an error inside a stream."""
        ...


class ChatCompletionsDialect:
    """OpenAI Chat Completions."""

    format: WireFormat = "chat_completions"

    def check_headers(self, headers: Mapping[str, str], options: Options) -> None:
        """Refuse a wrong key."""
        check_openai_key(headers, options)

    def check(self, body: Json, options: Options) -> None:
        """Refuse what OpenAI refuses."""
        chat_rules.check(body, options)

    def read(self, body: Json) -> PracticeRequest:
        """Take the conversation out."""
        return chat_wire.read(body)

    def count(self, body: Json, cache: PrefixCache) -> TokenTally:
        """Count as an automatic prefix cache does."""
        return cache.automatic(body["model"], chat_wire.blocks(body))

    def check_window(self, prompt_tokens: int, body: Json, limit: int) -> None:
        """Refuse with context_length_exceeded."""
        if prompt_tokens > limit:
            raise VendorRefusal(
                f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
                f"{prompt_tokens} tokens. Please reduce the length of the messages.",
                param="messages",
                code="context_length_exceeded",
            )

    def whole(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> Json:
        """Write a chat.completion."""
        return chat_wire.whole(reply, envelope)

    def stream(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> list[bytes]:
        """Write chat.completion.chunk events."""
        return chat_wire.stream(reply, envelope)

    def error(self, refusal: VendorRefusal) -> Json:
        """Write OpenAI's error object."""
        return openai_error(refusal.status, refusal.message, param=refusal.param, code=refusal.code)

    def error_event(self, error: Json) -> bytes:
        """Write it as an event."""
        return chat_wire.error_event(error)


class Messages:
    """Anthropic Messages. Remembers which calls were sent together with thinking, at most 10,000."""

    format: WireFormat = "anthropic_messages"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._thought: dict[str, None] = {}

    def check_headers(self, headers: Mapping[str, str], options: Options) -> None:
        """Refuse a wrong key or a missing version."""
        messages_rules.check_headers(headers, options)

    def check(self, body: Json, options: Options) -> None:
        """Refuse what Anthropic refuses."""
        messages_rules.check(body, options, self._is_signed)
        messages_rules.check_thought(body, self._thought)

    def read(self, body: Json) -> PracticeRequest:
        """Take the conversation out."""
        return messages_wire.read(body)

    def count(self, body: Json, cache: PrefixCache) -> TokenTally:
        """Count as caching by marks does."""
        return cache.marked(body["model"], messages_wire.blocks(body))

    def check_window(self, prompt_tokens: int, body: Json, limit: int) -> None:
        """Refuse a prompt that is too long, alone or together with max_tokens."""
        if prompt_tokens > limit:
            raise VendorRefusal(f"prompt is too long: {prompt_tokens} tokens > {limit} maximum")
        if prompt_tokens + body["max_tokens"] > limit:
            raise VendorRefusal(
                f"input length and `max_tokens` exceed context limit: {prompt_tokens} + "
                f"{body['max_tokens']} > {limit}, "
                "decrease input length or `max_tokens` and try again"
            )

    def whole(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> Json:
        """Write a message."""
        self._remember(reply)
        return messages_wire.whole(reply, envelope, self._seed)

    def stream(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> list[bytes]:
        """Write message events."""
        self._remember(reply)
        return messages_wire.stream(reply, envelope, self._seed)

    def error(self, refusal: VendorRefusal) -> Json:
        """Write Anthropic's error object."""
        return anthropic_error(refusal.status, refusal.message, kind=refusal.code or "")

    def error_event(self, error: Json) -> bytes:
        """Write it as an event."""
        return messages_wire.error_event(error)

    def _is_signed(self, thinking: str, signature: str) -> bool:
        return hmac.compare_digest(messages_wire.sign(thinking, self._seed), signature)

    def _remember(self, reply: ScriptedReply) -> None:
        for call in reply.tool_calls:
            self._thought.pop(call.id, None)
            if reply.reasoning:
                self._thought[call.id] = None
        if len(self._thought) > _THOUGHT_LIMIT:
            self._thought = dict.fromkeys(list(self._thought)[-_THOUGHT_LIMIT // 2 :])


class ResponsesDialect(ChatCompletionsDialect):
    """OpenAI Responses; keys, counting and errors are Chat's."""

    format: WireFormat = "responses"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def check(self, body: Json, options: Options) -> None:
        """Refuse what OpenAI refuses."""
        responses_rules.check(body, options, self._is_sealed)

    def read(self, body: Json) -> PracticeRequest:
        """Take the conversation out."""
        return responses_wire.read(body)

    def count(self, body: Json, cache: PrefixCache) -> TokenTally:
        """Count as an automatic prefix cache does."""
        return cache.automatic(body["model"], responses_wire.blocks(body))

    def check_window(self, prompt_tokens: int, body: Json, limit: int) -> None:
        """Refuse with context_length_exceeded."""
        if prompt_tokens > limit:
            raise VendorRefusal(
                "Your input exceeds the context window of this model. Please adjust your input and try "
                "again.",
                param="input",
                code="context_length_exceeded",
            )

    def whole(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> Json:
        """Write a response."""
        return responses_wire.whole(reply, envelope, self._seed)

    def stream(self, reply: ScriptedReply, envelope: AnswerEnvelope) -> list[bytes]:
        """Write response events."""
        return responses_wire.stream(reply, envelope, self._seed)

    def error_event(self, error: Json) -> bytes:
        """Write it as an event."""
        return responses_wire.error_event(error)

    def _is_sealed(self, item_id: str, sealed: str) -> bool:
        return hmac.compare_digest(responses_wire.seal(item_id, self._seed), sealed)
