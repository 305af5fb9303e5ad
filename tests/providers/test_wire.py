"""The prefix law, for every codec and any list of messages, and that nothing is encoded twice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers import shapes
from whet.contract.messages import Message
from whet.providers.anthropic_messages import AnthropicMessages
from whet.providers.catalog import SERVERS
from whet.providers.chat_completions import ChatCompletions
from whet.providers.responses import ResponsesEncoder
from whet.providers.wire import RequestOptions, ServerDialect, WireCache, WireCodec

CODECS: list[tuple[WireCodec, object]] = [
    (ChatCompletions(ServerDialect()), shapes.CHAT),
    (ChatCompletions(SERVERS["mistral"].dialect), shapes.CHAT),
    (AnthropicMessages(), shapes.ANTHROPIC),
    (ResponsesEncoder(SERVERS["openai"].dialect), shapes.RESPONSES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "adapter"), CODECS)
@settings(max_examples=40, deadline=None)
@given(conversation=shapes.messages, system=shapes.texts)
def test_any_list_gives_a_body_that_the_sdk_types_accept(codec, adapter, conversation, system):
    cache = shapes.cache(codec, system=system)
    shapes.check(adapter, msgspec.json.decode(cache.body(conversation)))


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "adapter"), CODECS)
@settings(max_examples=40, deadline=None)
@given(conversation=shapes.messages, system=shapes.texts)
def test_each_request_is_a_prefix_of_the_next(codec: WireCodec, adapter, conversation, system):
    cache = shapes.cache(codec, system=system)
    earlier = b""
    for count in range(len(conversation) + 1):
        head = conversation[:count]
        body = cache.body(head)
        assert body.endswith(codec.tail(head))
        assert body.startswith(earlier)
        earlier = body[: len(body) - len(codec.tail(head))]
    assert cache.body(conversation) == shapes.cache(codec, system=system).body(conversation)


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "adapter"), CODECS)
@settings(max_examples=40, deadline=None)
@given(first=shapes.messages, keep=st.integers(0, 8), second=shapes.messages)
def test_a_rewritten_past_gives_the_same_bytes_as_a_fresh_cache(codec, adapter, first, keep, second):
    cache = shapes.cache(codec)
    cache.body(first)
    rewritten = first[:keep] + second
    assert cache.body(rewritten) == shapes.cache(codec).body(rewritten)


class Counting(ChatCompletions):
    """A codec that counts what it encodes."""

    encoded = 0

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        self.encoded += 1
        return super().fragment(messages, index)


def test_a_message_is_encoded_once_however_often_it_is_sent():
    codec = Counting(ServerDialect())
    cache = WireCache(codec, codec.head("s", [], RequestOptions("m")))
    conversation: list[Message] = []
    for number in range(50):
        conversation = [*conversation, Message("user", str(number))]
        cache.body(conversation)
    assert codec.encoded == 50


def test_a_past_that_was_rewritten_is_sent_as_if_it_had_never_been_another():
    codec = ChatCompletions(ServerDialect())
    message, two, three, four = (Message("user", str(number)) for number in range(4))
    for rewritten in (
        [message, four],
        [four, two, three],
        [message, four, three, two],
        [message],
        [],
        [message, two, three],
    ):
        cache = shapes.cache(codec)
        cache.body([message, two, three])
        for _ in range(2):
            assert cache.body(rewritten) == shapes.cache(codec).body(rewritten)


def test_the_call_ids_of_all_messages_are_known():
    cache = shapes.cache(ChatCompletions(ServerDialect()))
    cache.body([Message("assistant", "", (shapes.call("a"), shapes.call("b")))])
    assert cache.call_ids == {"a", "b"}
