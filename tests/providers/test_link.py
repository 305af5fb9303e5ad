"""The whole way over real HTTP: answers, every fault of the wire, retries, keys, cancellation."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from tests.listening import listening, self_signed
from tests.providers.server import SSE, Script, Server, running, sse
from tests.support import cancel_task
from whet.config.schema import ModelSettings
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ConfigError,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    Unavailable,
    WireError,
)
from whet.contract.events import ReasoningDelta, Retry, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import AnswerGrew, AttemptLost, ModelLink, ModelReply
from whet.providers.backoff import Backoff
from whet.providers.connect import ServerProvider, connect_one

FIRST = b'{"model":"m","choices":[{"delta":{"content":"Hel"}}]}'
LAST = b'{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
GOOD = Script([sse(FIRST, LAST, USAGE, b"[DONE]")], headers={"x-request-id": "req_9"})
JSON = "application/json"
OLLAMA = ["/api/ps", "/api/show"]
HI = [Message("user", "hi")]


class Waits:
    """A sleep that keeps what was asked for and waits for nothing."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


def provider(
    server: Server, secrets: dict[str, str] | None = None, *, waits: Waits | None = None, **settings: Any
) -> ServerProvider:
    fields = {"provider": "practice", "base_url": server.url, "model": "m", "timeout_s": 5.0, **settings}
    backoff = Backoff(fields.get("max_retries", 2), uniform=lambda _, high: high, sleep=waits or Waits())
    return connect_one(ModelSettings(**fields), secrets or {}, backoff=backoff)


async def items_of(source: ServerProvider, messages: list[Message] = HI) -> list[Any]:
    try:
        return [item async for item in source.open("sys", [], "s-1").stream(messages)]
    finally:
        await source.aclose()


def run(test: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await test()

    return asyncio.run(bounded())


def failure_of(*scripts: Script, **settings: Any) -> ProviderError:
    async def test() -> ProviderError:
        async with running(*scripts) as server:
            with pytest.raises(ProviderError) as caught:
                await items_of(provider(server, **{"max_retries": 0, **settings}))
            return caught.value

    return run(test)


async def test_an_answer_streams_and_the_connection_is_used_again():
    async with running(GOOD, GOOD) as server:
        source = provider(server)
        link = source.open("sys", [], "s-1")
        for _ in range(2):
            items = [item async for item in link.stream(HI)]
            assert items[:2] == [TextDelta("Hel"), TextDelta("lo")]
            reply = items[-1]
            assert isinstance(reply, ModelReply) and reply.message.content == "Hello"
            assert reply.request_id == "req_9" and reply.usage.prompt_tokens == 3
        assert server.connections == 1
        assert server.requests[0].target == "/v1/chat/completions"
        assert "authorization" not in server.requests[0].headers
        await source.aclose()


async def test_a_name_and_password_in_the_base_url_are_sent_and_never_shown():
    async with asyncio.timeout(20):
        async with running(GOOD, Script([b"no"], 401, "text/plain"), Script([b"{}"], 200, JSON)) as server:
            url = f"http://ann:p%40ss-{'w' * 20}@127.0.0.1:{server.port}/v1"
            await items_of(provider(server, base_url=url))
            kind, _, pair = server.requests[0].headers["authorization"].partition(" ")
            assert (kind, b64decode(pair).decode()) == ("Basic", f"ann:p@ss-{'w' * 20}")
            assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
            with pytest.raises(AuthRejected) as caught:
                await items_of(provider(server, base_url=url, max_retries=0))
            for text in (caught.value.message, caught.value.hint, str(caught.value)):
                assert "www" not in text and "p%40ss" not in text
    for wrong in ("http://ann:wwwwwwww@", "ftp://ann:wwwwwwww@host/v1", "http://ann:wwwwwwww@[::/v1"):
        with pytest.raises(ConfigError) as refused:
            connect_one(ModelSettings(provider="practice", base_url=wrong, model="m"), {})
        assert "www" not in refused.value.message


async def reply(link: ModelLink, messages: Sequence[Message]) -> ModelReply:
    """Give the end of a stream."""
    last = [item async for item in link.stream(messages)][-1]
    assert isinstance(last, ModelReply)
    return last


async def test_many_pieces_that_came_together_are_shown_as_one_of_each_kind():
    pieces = ['{"reasoning":"a"}', '{"reasoning":"b"}', *(f'{{"content":"{letter}"}}' for letter in "cdef")]
    stream = sse(*(f'{{"choices":[{{"delta":{piece}}}]}}' for piece in pieces), LAST, b"[DONE]")
    async with running(Script([stream])) as server:
        items = await items_of(provider(server))
        assert items[:-1] == [ReasoningDelta("ab"), TextDelta("cdeflo")]
        assert items[-1].message.content == "cdeflo" and items[-1].message.reasoning == "ab"


async def test_a_call_id_that_was_used_before_is_made_new():
    called = (
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_0","function":{"name":"f",'
        b'"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}'
    )
    async with running(*[Script([sse(called, b"[DONE]")])] * 2) as server:
        source = provider(server)
        link = source.open("", [], "s")
        first = (await reply(link, HI)).message
        result = Message("tool", "ok", tool_call_id=first.tool_calls[0].id, tool_name="f")
        second = (await reply(link, [*HI, first, result])).message
        assert (first.tool_calls[0].id, second.tool_calls[0].id) == ("call_0", "call_0_2")
        await source.aclose()


@pytest.mark.parametrize("fault", [{"cut": True}, {"reset": True}])
async def test_a_broken_stream_begins_again(fault):
    waits = Waits()
    broken = Script([sse(FIRST)], **fault)
    async with running(broken, GOOD) as server:
        items = await items_of(provider(server, waits=waits))
        kinds = [type(item) for item in items]
        assert kinds == [
            TextDelta,
            AttemptLost,
            StreamRestarted,
            AnswerGrew,
            TextDelta,
            TextDelta,
            ModelReply,
        ]
        assert waits.asked == [0.5]
        assert server.requests[0].body == server.requests[1].body


def test_a_stream_that_just_ends_early_is_a_cut():
    error = failure_of(Script([sse(FIRST)]))
    assert type(error) is Unavailable and "ended before" in error.message


async def test_failures_before_the_first_delta_are_retried_with_back_off():
    waits = Waits()
    busy = Script([b"{}"], status=503, content_type="application/json")
    limited = Script([b"{}"], status=429, headers={"retry-after": "7"})
    async with running(busy, limited, GOOD) as server:
        items = await items_of(provider(server, waits=waits, provider="vllm"))
        retries = [item for item in items if isinstance(item, Retry)]
        assert [(retry.attempt, retry.wait_s) for retry in retries] == [(1, 0.5), (2, 7.25)]
        assert waits.asked == [0.5, 7.25]
        assert isinstance(items[-1], ModelReply)
        # A window that nobody asked for before is not asked for afterwards.
        assert {request.target for request in server.requests} == {"/v1/chat/completions"}


def test_a_silent_server_is_given_up_after_the_time_limit():
    error = failure_of(Script([sse(FIRST)], stall=True), timeout_s=0.2)
    assert type(error) is Unavailable and "silent for 0.2 s" in error.message and "127.0.0.1" in error.message


@pytest.mark.slow
async def test_a_server_that_keeps_the_connection_open_after_the_end_costs_no_answer():
    held = Script([sse(FIRST, LAST, b"[DONE]")], stall=True)
    async with running(held) as server:
        items = await items_of(provider(server))
        assert items[-1].message.content == "Hello"


async def test_a_break_after_the_answer_is_whole_takes_nothing_away():
    async with running(Script([sse(FIRST, LAST)], reset=True)) as server:
        items = await items_of(provider(server, max_retries=0))
        assert items[-1].message.content == "Hello" and items[-1].usage.is_prompt_estimated


@pytest.mark.parametrize(
    ("script", "expected", "words"),
    [
        (Script([b"<html>login</html>"], content_type="text/html"), WireError, "text/html"),
        (Script([b"%PDF-1.4"], content_type="application/pdf"), WireError, "application/pdf"),
        (Script([b"hello"], content_type=""), WireError, "no content type"),
        (Script([b'{"ok":true}'], content_type="application/json"), WireError, "JSON instead"),
        (Script([b'{"error":{"message":"no such model"}}'], content_type=JSON), Unavailable, "no such"),
        (Script([b"<html>"], status=502, content_type="text/html"), Unavailable, "an HTML page"),
        (Script([b'{"error":{"message":"bad key"}}'], status=401), AuthRejected, "bad key"),
        (Script([b'event: error\ndata: {"error":"boom"}\n\n']), Unavailable, "boom"),
        (Script([sse(b'{"error":{"message":"context size 9"}}')]), ContextOverflow, "size 9"),
        (Script([sse(b'{"choices":[{"finish_reason":"content_filter"}]}')]), ModelRefused, "declined"),
        (Script([b"\xff\xfe\x00"], content_type=SSE), WireError, "instead of an event stream"),
        (Script([b"{}"], status=302, headers={"location": "http://elsewhere"}), BadRequest, "elsewhere"),
    ],
)
def test_wrong_answers_are_typed(script, expected, words):
    error = failure_of(script)
    assert type(error) is expected
    assert words in error.message and error.provider == "practice"


@pytest.mark.parametrize(("head", "words"), [(b"", "instead of an event stream"), (sse(FIRST), "has no end")])
def test_an_answer_without_end_is_given_up(head, words):
    endless = b"data: " + b"y" * 1_000_000 + b"\n"
    error = failure_of(Script([head + endless, *[endless] * 39]))
    assert isinstance(error, WireError) and words in error.message


async def test_an_answer_in_plain_json_is_taken():
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}'
    async with running(Script([body], content_type="application/json")) as server:
        items = await items_of(provider(server))
        assert items[0] == TextDelta("hi") and items[1].message.content == "hi"


def test_a_server_that_is_not_there():
    async def test() -> ProviderError:
        async with running() as server:
            pass
        with pytest.raises(Unavailable) as caught:
            await items_of(provider(server, max_retries=0))
        return caught.value

    error = run(test)
    assert "can't connect to 127.0.0.1:" in error.message and "running" in error.hint


def test_a_name_that_does_not_resolve():
    error = failure_of(base_url="http://model.invalid/v1")
    assert "model.invalid can't be resolved" in error.message


def test_a_certificate_that_is_not_trusted(tmp_path):
    async def test() -> ProviderError:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self_signed(tmp_path, "x"))

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with listening(hang_up, trust=context) as port:
            source = connect_one(
                ModelSettings(provider="practice", base_url=f"https://127.0.0.1:{port}", max_retries=0), {}
            )
            with pytest.raises(Unavailable) as caught:
                await items_of(source)
            await source.aclose()
        return caught.value

    error = run(test)
    assert "no trusted TLS connection to 127.0.0.1" in error.message and "SSL_CERT_FILE" in error.hint


async def test_a_proxy_from_the_environment_is_used(monkeypatch):
    async with running(GOOD) as server:
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        items = await items_of(provider(server, base_url="http://model.invalid/v1"))
        assert items[-1].message.content == "Hello"
        assert server.requests[0].target == "http://model.invalid/v1/chat/completions"


@pytest.mark.parametrize(("status", "body"), [(502, b""), (403, b"<html>blocked</html>")])
def test_a_proxy_that_answers_in_place_of_the_server_is_named(monkeypatch, status, body):
    async def test() -> ProviderError:
        async with running(Script([body], status=status)) as server:
            monkeypatch.delenv("NO_PROXY")
            monkeypatch.setenv("HTTP_PROXY", f"http://ann:secret-1@127.0.0.1:{server.port}")
            with pytest.raises(ProviderError) as caught:
                await items_of(provider(server, base_url="http://model.invalid/v1", max_retries=0))
            return caught.value

    error = run(test)
    assert "the proxy 127.0.0.1:" in error.message and "or model.invalid behind it" in error.message
    assert "secret-1" not in error.message


def test_a_proxy_that_refuses_is_named(monkeypatch):
    async def test() -> ProviderError:
        async with running(Script([b""], status=407)) as server:
            monkeypatch.delenv("NO_PROXY")
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
            with pytest.raises(Unavailable) as caught:
                await items_of(provider(server, base_url="https://model.invalid/v1", max_retries=0))
            return caught.value

    error = run(test)
    assert "proxy" in error.message and "model.invalid" in error.message and "HTTPS_PROXY" in error.hint


async def test_keys_rotate_and_the_person_is_told_without_the_key():
    rejected = Script([b'{"error":{"message":"Incorrect API key provided: key-one-value"}}'], status=401)
    async with running(rejected, GOOD, GOOD) as server:
        secrets = {"K": "key-one-value", "K_2": "key-two-value"}
        source = provider(server, secrets, api_key_env="K")
        link = source.open("s", [], "s")
        items = [item async for item in link.stream(HI)]
        assert items[0] == Retry(1, 0.0, "K was rejected; K_2 is used now")
        assert isinstance(items[-1], ModelReply) and items[-1].notices == ("K was rejected; K_2 is used now",)
        assert (await reply(link, HI)).notices == ()
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer key-one-value", "Bearer key-two-value", "Bearer key-two-value"]
        await source.aclose()


def test_when_every_key_fails_the_error_shows_no_key():
    rejected = Script([b'{"error":{"message":"bad: key-two-value"}}'], status=401)

    async def test() -> ProviderError:
        async with running(rejected, rejected) as server:
            with pytest.raises(AuthRejected) as caught:
                await items_of(
                    provider(server, {"K": "key-one-value", "L": "key-two-value"}, api_key_env="K,L")
                )
            return caught.value

    assert "key-two" not in run(test).message


async def test_cancelling_closes_the_connection():
    async with running(Script([sse(FIRST)], stall=True)) as server:
        source = provider(server)
        seen = asyncio.Event()

        async def consume() -> None:
            async for _ in source.open("s", [], "s").stream(HI):
                seen.set()

        task = asyncio.create_task(consume())
        async with asyncio.timeout(30):
            await seen.wait()
        await cancel_task(task)
        async with asyncio.timeout(30):
            await server.closed.wait()
        await source.aclose()


async def test_anthropic_headers_and_path():
    stream = sse(
        b'{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
        b'{"type":"message_stop"}',
    )
    async with running(Script([stream])) as server:
        root = server.url.removesuffix("/v1")
        source = provider(
            server, {"K": "secret-key"}, base_url=root, format="anthropic_messages", api_key_env="K"
        )
        await items_of(source)
        request = server.requests[0]
        assert request.target == "/v1/messages" and request.headers["x-api-key"] == "secret-key"
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in request.headers


async def test_models_are_listed_and_a_wrong_list_is_said():
    listed = Script([b'{"object":"list","data":[{"id":"b"},{"id":"a"}]}'], content_type="application/json")
    wrong = Script([b"<html>"], content_type="text/html")
    named = Script([b'{"models":[{"name":"d"},{"name":"c"},{},{"name":"d"}]}'], content_type=JSON)
    async with running(listed, named, wrong) as server:
        source = provider(server)
        assert await source.list_models() == ["a", "b"]
        assert await source.list_models() == ["c", "d"]
        assert server.requests[0].target == "/v1/models"
        with pytest.raises(WireError, match="no list of models"):
            await source.list_models()
        await source.aclose()


@pytest.mark.parametrize(
    ("name", "answers", "tokens", "paths"),
    [
        ("ollama", ['{"models":[{"name":"m:latest","context_length":8192}]}'], 8192, ["/api/ps"]),
        ("ollama", ['{"models":[]}', '{"parameters":"num_ctx 4096","model_info":{}}'], 4096, OLLAMA),
        ("ollama", ['{"models":[]}', '{"model_info":{"llama.context_length":9000}}'], 9000, OLLAMA),
        ("llamacpp", ['{"default_generation_settings":{"n_ctx":2048}}'], 2048, ["/props"]),
        ("vllm", ['{"data":[{"id":"m","max_model_len":32768}]}'], 32768, ["/v1/models"]),
        ("lmstudio", ['{"data":[{"id":"m","max_context_length":9}]}'] * 2, 9, ["/api/v0/models"] * 2),
        ("vllm", ['{"data":[]}'], None, ["/v1/models"]),
        ("llamacpp", ["<html>"], None, ["/props"]),
        ("llamacpp", ["[1]"], None, ["/props"]),
    ],
)
async def test_the_window_of_a_local_server_is_asked(name, answers, tokens, paths):
    scripts = [Script([answer.encode()], content_type="application/json") for answer in answers]
    async with running(*scripts) as server:
        source = provider(server, provider=name)
        before = source.info.window_tokens
        assert await source.probe_window() == tokens
        assert source.info.window_tokens == (tokens or before)
        assert [request.target for request in server.requests] == paths
        # Ollama is told which model is meant; everybody else is only asked.
        methods = ["POST" if path == "/api/show" else "GET" for path in paths]
        assert [request.method for request in server.requests] == methods
        await source.aclose()


async def test_a_window_from_the_settings_is_not_asked_for():
    async with running() as server:
        source = provider(server, provider="vllm", window_tokens=77)
        assert await source.probe_window() is None and source.info.window_tokens == 77


@pytest.mark.slow
async def test_many_sessions_share_one_provider():
    async with running(*[GOOD] * 60) as server:
        source = provider(server)
        links = [source.open("s", [], str(number)) for number in range(60)]

        async def one(link: Any) -> str:
            return [item async for item in link.stream(HI)][-1].message.content

        assert set(await asyncio.gather(*map(one, links))) == {"Hello"}
        assert all(msgspec.json.decode(request.body) for request in server.requests)
        await source.aclose()
