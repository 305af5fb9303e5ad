"""Finding a model at first run: keys, servers that really answer, a person who chooses."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import let_pass
from whet.app.model_links.discover import (
    ModelChoice,
    ask_person,
    choose_model,
    list_by_keys,
    list_by_servers,
    needs_model,
    practice_choice,
    save_choice,
)
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.errors import ConfigError
from whet_lab.practice.server import PracticeServer


@contextmanager
def answering(raw: bytes | None, *, closes: bool = True) -> Iterator[str]:
    """A server that sends `raw` to everybody and hangs up; None: takes the connection and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            connection.settimeout(30)
            if raw is not None:
                connection.recv(65_536)
                connection.sendall(raw)
                if closes:
                    connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)
        for connection in held:
            connection.close()


def body(text: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return f"{head}\r\n\r\n{text}".encode()


def probe(name: str, url: str, limit_s: float = 5.0) -> list[ModelChoice]:
    return asyncio.run(list_by_servers({name: url}, limit_s=limit_s))


def test_keys_are_found_by_name_in_the_catalogs_order() -> None:
    choices = list_by_keys(
        {"GROQ_API_KEY": "x", "ANTHROPIC_API_KEY": "y", "OPENAI_API_KEY": "", "OTHER": "z"}
    )
    assert [choice.provider for choice in choices] == ["anthropic", "groq"]
    assert choices[0].reason == "ANTHROPIC_API_KEY is set"
    assert choices[0].model
    assert list_by_keys({}) == []


def test_a_server_that_answers_is_offered_with_a_model_for_chat() -> None:
    text = '{"object": "list", "data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}]}'
    with answering(body(text)) as url:
        (choice,) = probe("ollama", url)
    assert (choice.provider, choice.model) == ("ollama", "qwen3:8b")
    assert choice.reason.startswith("answers on 127.0.0.1:")


def test_the_practice_server_is_understood_over_real_http() -> None:
    with PracticeServer() as server:
        (choice,) = probe("vllm", server.base_url)
    assert choice.model


@pytest.mark.parametrize(
    "raw",
    [
        body("<html>a web shop</html>"),
        body('{"models": []}'),
        body('{"error": "key"}', "401 Unauthorized"),
        b"SSH-2.0-OpenSSH\r\n",
        b"",
        body('{"data": [{"id": 3}]}'),
    ],
)
def test_other_servers_on_these_ports_are_not_offered(raw: bytes) -> None:
    with answering(raw) as url:
        assert probe("vllm", url) == []


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_server_that_keeps_the_connection_open_is_offered(is_chunked: bool) -> None:
    text = '{"data": [{"id": "qwen3:8b"}]}'
    chunks = f"{9:x}\r\n{text[:9]}\r\n{len(text) - 9:x};x=y\r\n{text[9:]}\r\n0\r\n\r\n"
    head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = f"{head}{chunks}".encode() if is_chunked else body(text)
    with answering(raw, closes=False) as url:
        (choice,) = probe("vllm", url, limit_s=300)
    assert choice.model == "qwen3:8b"


async def test_silence_and_closed_ports_cost_no_more_than_the_limit() -> None:
    with answering(None) as silent, answering(body('{"data": [{"id": "m"}]}')) as good:
        servers = {"ollama": silent, "llamacpp": "http://127.0.0.1:1/v1", "vllm": good}
        asking = asyncio.create_task(list_by_servers(servers, limit_s=300))
        await asyncio.sleep(0)
        while len(asyncio.all_tasks()) > 3:  # this one, the asking, and the probe of the silent one
            await asyncio.sleep(0.01)
        let_pass(300)
        choices = await asking
    assert [choice.provider for choice in choices] == ["vllm"]


OFFERS = [ModelChoice("openai", "gpt", "OPENAI_API_KEY is set"), practice_choice()]


@pytest.mark.parametrize(
    ("typed", "provider"), [([""], "openai"), (["2"], "practice"), (["9", "x", " practice "], "practice")]
)
def test_the_person_chooses(typed: list[str], provider: str) -> None:
    texts: list[str] = []
    answers = iter(typed)
    assert ask_person(OFFERS, texts.append, lambda prompt: next(answers)).provider == provider
    assert any("openai · gpt  (OPENAI_API_KEY is set)" in line for line in texts)


def test_the_choice_is_saved(home: Path) -> None:
    place = Home(home)
    assert needs_model(load(place, environ={}).settings)
    save_choice(place, OFFERS[0])
    settings = load(place, environ={}).settings
    assert (settings.model.provider, settings.model.model) == ("openai", "gpt")
    assert not needs_model(settings)
    assert not needs_model(Settings(model=ModelSettings(base_url="http://localhost:1/v1")))


def test_without_a_terminal_one_line_says_what_to_set(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_model(Home(home), {"GROQ_API_KEY": "secret-value-here"}, print, None)
    assert "whet config set model.provider groq" in caught.value.message
    with pytest.raises(ConfigError) as caught:
        choose_model(Home(home), {}, print, None)
    assert "OPENAI_API_KEY" in caught.value.message
    assert "\n" not in caught.value.message
    assert not home.exists()
