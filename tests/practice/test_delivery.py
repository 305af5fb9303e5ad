"""Each fault reaches the vendors' clients as the error that the real server's fault would be."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.late import Late
from tests.practice.clients import USER, answer_of, complete, converse
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply, html_page, rate_limit_reply, server_error

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Late("anthropic"), Late("openai")


def post(server, body, path="/v1/chat/completions"):
    """Read an answer with nothing but HTTP: the status, the headers, each read as it came."""
    with closing(http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        pieces = []
        while piece := response.read1():
            pieces.append(piece)
        if response.length:
            raise http.client.IncompleteRead(b"".join(pieces), response.length)
        return response.status, dict(response.headers), pieces


STREAMED = {"model": "any", "messages": USER, "stream": True}


@pytest.mark.fast_rows("400", "429", "529")
@pytest.mark.parametrize(
    ("status", "openai_class", "claude_class"),
    [
        (400, "BadRequestError", "BadRequestError"),
        (401, "AuthenticationError", "AuthenticationError"),
        (403, "PermissionDeniedError", "PermissionDeniedError"),
        (404, "NotFoundError", "NotFoundError"),
        (413, "APIStatusError", "RequestTooLargeError"),
        (429, "RateLimitError", "RateLimitError"),
        (500, "InternalServerError", "InternalServerError"),
        (503, "InternalServerError", "ServiceUnavailableError"),
        (529, "InternalServerError", "OverloadedError"),
    ],
)
def test_statuses_become_the_clients_own_errors(serve, chat, claude, status, openai_class, claude_class):
    server = serve(server_error(status, "no"), server_error(status, "no"))
    with pytest.raises(getattr(openai, openai_class)) as caught:
        complete(chat(server))
    assert caught.value.status_code == status
    assert caught.value.body["message"] == "no"
    with pytest.raises(getattr(anthropic, claude_class)) as caught:
        converse(claude(server))
    assert caught.value.body["error"]["message"] == "no"


def test_retry_after_is_sent_and_the_next_reply_answers(serve, chat):
    server = serve(rate_limit_reply(0.01), ScriptedReply("at last"))
    client = chat(server).with_options(max_retries=1)
    assert answer_of(client) == "at last"
    status, headers, _ = post(serve(rate_limit_reply(7)), STREAMED)
    assert (status, headers["retry-after"]) == (429, "7")


def test_an_html_page_is_sent_as_one(serve, chat):
    server = serve(html_page(502), html_page(200))
    with pytest.raises(openai.InternalServerError, match="502"):
        complete(chat(server))
    status, headers, pieces = post(server, STREAMED)
    assert (status, headers["content-type"]) == (200, "text/html")
    assert b"<html>" in b"".join(pieces)


@pytest.mark.parametrize("body", [STREAMED, STREAMED | {"stream": False}])
def test_a_cut_answer_ends_without_its_end(serve, body):
    server = serve(ScriptedReply("hello", fault=Fault(cut_after=1)))
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        post(server, body)


def test_a_cut_stream_is_a_connection_error_for_clients(serve, chat, claude):
    cut = ScriptedReply("hello", fault=Fault(cut_after=2))
    server = serve(cut, cut)
    with pytest.raises(openai.APIConnectionError):
        list(complete(chat(server), stream=True))
    with pytest.raises((httpx2.RemoteProtocolError, anthropic.APIConnectionError)):
        list(converse(claude(server), stream=True))


def test_a_dropped_connection_has_no_answer(serve, chat):
    with pytest.raises(openai.APIConnectionError):
        chat(serve(ScriptedReply(fault=Fault(drop=True)))).chat.completions.create(model="any", messages=USER)


def test_a_stalled_stream_waits_for_release(serve, chat):
    server = serve(ScriptedReply("hello", fault=Fault(stall_after=2)))
    seen: list[str] = []

    def listen() -> None:
        for chunk in complete(chat(server), stream=True):
            seen.append(chunk.choices[0].delta.content or "")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    server.wait_for_stall()
    assert thread.is_alive()
    server.release()
    thread.join(10)
    assert "".join(seen) == "hello"


def test_a_stall_before_the_headers_and_a_client_that_gives_up(serve, chat):
    server = serve(ScriptedReply(fault=Fault(stall_after=-1)), ScriptedReply("next"))
    client = chat(server).with_options(timeout=openai.Timeout(30, read=0.05))
    with pytest.raises(openai.APITimeoutError):
        complete(client)
    server.wait_for_stall()
    _, _, pieces = post(server, STREAMED)
    assert b"next" in b"".join(pieces)


def test_stopping_does_not_wait_for_a_stall(serve, chat):
    server = serve(ScriptedReply("hello", fault=Fault(stall_after=1)))
    stream = complete(chat(server), stream=True)
    server.wait_for_stall()
    server.stop()
    with pytest.raises(openai.APIConnectionError):
        list(stream)


def test_characters_are_cut_in_the_middle_and_clients_mend_them(serve, chat):
    text = "größer 👋 日本"
    fault = Fault(split_utf8=True)
    server = serve(ScriptedReply(text, fault=fault), ScriptedReply(text, fault=fault))
    _, _, pieces = post(server, STREAMED)
    broken = 0
    for piece in pieces:
        try:
            piece.decode()
        except UnicodeDecodeError:
            broken += 1
    assert broken >= 2
    chunks = complete(chat(server), stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text


def test_an_error_inside_the_stream_is_raised(serve, chat, claude):
    fault = Fault(error_after=2, message="Overloaded")
    server = serve(*[ScriptedReply("hello", fault=fault)] * 3)
    with pytest.raises(openai.APIError, match="Overloaded"):
        list(complete(chat(server), stream=True))
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        list(converse(claude(server), stream=True))
    last = list(chat(server).responses.create(model="any", input="hi", stream=True))[-1]
    assert (last.type, last.message) == ("error", "Overloaded")


def test_broken_arguments_and_double_ids_go_out_as_scripted(serve, chat):
    calls = (PracticeCall("noop", '{"n": ', "same"), PracticeCall("noop", "{}", "same"))
    answer = complete(chat(serve(ScriptedReply(tool_calls=calls))), model="any", messages=USER)
    sent = answer.choices[0].message.tool_calls
    assert [(c.id, c.function.arguments) for c in sent] == [("same", '{"n": '), ("same", "{}")]


def test_a_wrong_content_type_and_extra_headers(serve):
    fault = Fault(content_type="text/plain", headers={"X-Extra": "1"})
    _, headers, pieces = post(serve(ScriptedReply("hi", fault=fault)), STREAMED)
    assert (headers["content-type"], headers["x-extra"]) == ("text/plain", "1")
    assert b"[DONE]" in pieces[-1]


def test_chunks_can_be_slow_and_small(serve):
    server = serve(ScriptedReply("abcdef", pieces=3, fault=Fault(delay_s=0.001)))
    _, _, pieces = post(server, STREAMED)
    assert b"".join(pieces).count(b"data: ") == 6


def test_an_exhausted_script_says_so_and_is_not_retried(serve, chat):
    server = serve(ScriptedReply("only"))
    client = chat(server).with_options(max_retries=5)
    complete(client)
    with pytest.raises(openai.InternalServerError, match="script exhausted: 1 replies were used"):
        complete(client)
    assert server.count == 2
