"""What the codec tests share: the vendors' own request types, random conversations, stream replay."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from pydantic import TypeAdapter

from whet.contract.messages import ImagePart, Message, TextPart, ToolCall
from whet.contract.protocols import ModelInfo
from whet.contract.tools import ToolSpec
from whet.providers.sse import SseParser
from whet.providers.wire import Decoder, RequestOptions, WireCache, WireCodec


class VendorsType:
    """A request type of a vendor's SDK, which is imported by the first test that needs it: 0.5 to 2 s."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What checks a value against it."""
        return TypeAdapter(getattr(importlib.import_module(self._module), self._name))


CHAT = VendorsType("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming")
ANTHROPIC = VendorsType("anthropic.types.message_create_params", "MessageCreateParamsStreaming")
RESPONSES = VendorsType("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming")

INFO = ModelInfo("vendor", "m-1", 100_000, 8_000, 1.0, 2.0, 0.1, 1.25)
PNG = ImagePart("image/png", "iVBORw0KGgo=")
TOOLS = [
    ToolSpec(
        "read_file",
        "Read a file.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    )
]


def check(expected: VendorsType, body: Any) -> None:
    """Validate a body to its leaves: the SDKs' Iterable fields are checked only while they are walked."""
    _walk(expected.adapter.validate_python(body))


def _walk(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _walk(inner)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for inner in value:
            _walk(inner)


def cache(codec: WireCodec, *, system: str = "Be brief.", **options: Any) -> WireCache:
    return WireCache(codec, codec.head(system, TOOLS, RequestOptions("m-1", "s-1", **options)))


def call(call_id: str = "call_1", name: str = "read_file", arguments: str = '{"path": "a"}') -> ToolCall:
    return ToolCall(call_id, name, arguments)


def result(call_id: str = "call_1", content: Any = "ok", *, is_error: bool = False) -> Message:
    return Message("tool", content, tool_call_id=call_id, tool_name="read_file", is_error=is_error)


def replay(decoder: Decoder, stream: bytes, pieces: Sequence[int] = ()) -> list[Any]:
    """Feed a stream cut at the given offsets; give the deltas."""
    parser = SseParser()
    deltas: list[Any] = []
    offsets = [0, *pieces, len(stream)]
    for start, end in pairwise(offsets):
        for _, data in parser.feed(stream[start:end]):
            deltas += decoder.feed(data)
    for _, data in parser.finish():
        deltas += decoder.feed(data)
    return deltas


def every_cut(stream: bytes) -> Iterator[tuple[int, ...]]:
    yield from ((at,) for at in range(1, len(stream)))
    yield tuple(range(1, len(stream)))


texts = st.text(max_size=12) | st.sampled_from(["", " ", "\n", "\udcff", "日本語", "\x00", '"\\'])
parts = st.lists(texts.map(TextPart) | st.just(PNG), max_size=3).map(tuple)
contents = texts | parts
ids = st.text(max_size=50) | st.sampled_from(["call_1", "toolu_01", "a b", "", "x" * 90])
arguments = st.sampled_from(
    [
        "{}",
        '{"a": 1}',
        ' {"a" : [1, 2]}\n',
        "",
        "[]",
        "null",
        "{",
        '{"a": NaN}',
        "x",
        '{"k":"\\ud800"}',
        "\udcff",
    ]
)
calls = st.lists(st.builds(ToolCall, ids, texts, arguments), max_size=3).map(tuple)
messages = st.lists(
    st.one_of(
        st.builds(Message, st.just("user"), contents),
        st.builds(Message, st.just("assistant"), texts, calls),
        st.builds(
            Message, st.just("tool"), contents, tool_call_id=ids, tool_name=texts, is_error=st.booleans()
        ),
    ),
    max_size=8,
)
