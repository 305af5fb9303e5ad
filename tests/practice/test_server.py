"""The practice server as a whole: its doors for tests, its keys and windows, starting and stopping."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.late import Late
from tests.practice.clients import USER, answer_of, complete, converse
from tests.support import quiet_port
from whet.contract.errors import Unavailable
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Late("anthropic"), Late("openai")


def fetch(url: str, body: Any = None) -> Any:
    data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode()
    return json.loads(text) if text.startswith("{") else text


def test_it_says_what_it_is(serve):
    assert "a scripted stand-in, not a language model" in fetch(serve().url)


def test_stopping_frees_the_port():
    before = set(threading.enumerate())  # other tests' servers among them
    port = quiet_port()
    with PracticeServer(port), pytest.raises(Unavailable, match=f"port {port} can't be used"):
        PracticeServer(port).start()
    with PracticeServer(port) as again:
        assert again.url == f"http://127.0.0.1:{port}"
    again.stop()
    assert not [t for t in threading.enumerate() if t.name == "practice-server" and t not in before]


def test_scripts_come_by_http_too(serve, chat):
    server = serve()
    assert fetch(f"{server.url}/practice/script", {"replies": [{"text": "scripted"}]}) == {"replies": 1}
    assert answer_of(chat(server), model="x") == "scripted"
    shown = fetch(f"{server.url}/practice/requests")
    assert shown["count"] == 1
    assert json.loads(shown["requests"][0]["body"])["messages"] == USER
    fetch(f"{server.url}/practice/reset", {})
    assert fetch(f"{server.url}/practice/requests")["requests"] == []
    assert answer_of(chat(server), model="practice-echo") == USER[0]["content"]


def test_a_broken_script_is_refused_by_field(serve):
    answer = fetch(f"{serve().url}/practice/script", {"replies": [{"txt": "x"}]})
    assert "unknown field `txt`" in answer["error"]["message"]


def test_a_stall_can_be_released_by_http(serve, chat):
    server = serve()
    fetch(f"{server.url}/practice/script", {"replies": [{"text": "late", "fault": {"stall_after": 1}}]})
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(answer_of(chat(server), model="x")), daemon=True)
    thread.start()
    server.wait_for_stall()
    fetch(f"{server.url}/practice/release", {})
    thread.join(10)
    assert texts == ["late"]


def test_replies_can_wait_for_their_request(serve, chat):
    waiting = ScriptedReply("for b", when="say b"), ScriptedReply("for a", when="say a")
    client = chat(serve(*waiting, ScriptedReply("else")))

    def say(text):
        answer = complete(client, model="x", messages=[{"role": "user", "content": text}])
        return answer.choices[0].message.content

    assert [say("say a"), say("anything"), say("say b")] == ["for a", "else", "for b"]


def test_refusals_have_the_vendors_shape_and_are_recorded(serve, chat, claude):
    server = serve()
    with pytest.raises(openai.BadRequestError) as caught:
        complete(chat(server), model="practice", messages=[])
    assert caught.value.param == "messages" and caught.value.code == "empty_array"
    with pytest.raises(anthropic.BadRequestError) as caught:
        converse(claude(server), model="practice", messages=[])
    assert json.loads(caught.value.response.text)["error"]["type"] == "invalid_request_error"
    assert [bool(r.refused) for r in server.requests] == [True, True]
    refused = fetch(f"{server.base_url}/chat/completions", b"{nope")
    assert "could not parse the JSON body" in refused["error"]["message"]


def test_unknown_models_are_not_found(serve, chat, claude):
    server = serve()
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        complete(chat(server), model="gpt-9")
    with pytest.raises(anthropic.NotFoundError, match="model: claude-9"):
        converse(claude(server), model="claude-9")
    with pytest.raises(openai.NotFoundError):
        chat(server).models.retrieve("gpt-9")


def test_keys_are_checked_where_one_is_set(serve, chat, claude):
    server = serve(api_key="sk-right-0123456789")
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided") as caught:
        complete(chat(server), model="practice")
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
        converse(claude(server), model="practice")
    assert "didn't provide an API key" in fetch(f"{server.base_url}/responses", {})["error"]["message"]
    right = chat(server).with_options(api_key="sk-right-0123456789")
    assert complete(right, model="practice").choices


def test_the_window_is_enforced_in_the_vendors_words(serve, chat, claude):
    server = serve(window_tokens=100)
    long = [{"role": "user", "content": "word " * 200}]
    with pytest.raises(
        openai.BadRequestError, match=r"maximum context length is 100 tokens\. However"
    ) as caught:
        complete(chat(server), model="practice", messages=long)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 100 maximum"):
        converse(claude(server), model="practice", messages=long)
    with pytest.raises(
        anthropic.BadRequestError, match=r"input length and `max_tokens` exceed context limit"
    ):
        converse(claude(server), model="practice", max_tokens=95)
    with pytest.raises(openai.BadRequestError, match="exceeds the context window") as caught:
        chat(server).responses.create(model="practice", input="word " * 200)
    assert caught.value.code == "context_length_exceeded"


def test_recorded_bodies_are_bounded(serve, chat):
    server = serve(keep_bytes=300)
    for number in range(5):
        complete(
            chat(server), model="practice-echo", messages=[{"role": "user", "content": f"{number}" * 100}]
        )
    assert server.count == 5
    assert 1 <= len(server.requests) < 5
    assert server.requests[-1].json_body["messages"][0]["content"] == "4" * 100


def test_waiting_for_what_does_not_come_ends(serve):
    with pytest.raises(TimeoutError, match="no request 1 within"):
        serve().wait_for_request(1, timeout=0.01)


def test_the_same_seed_gives_the_same_answers(serve, chat):
    ids = [complete(chat(serve(seed=seed)), model="practice").id for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


def test_thinking_that_was_changed_is_refused(serve, claude):
    client = claude(serve(ScriptedReply("a", reasoning="hm"), ScriptedReply("b")))
    first = converse(client, model="x")
    content = [block.to_dict() for block in first.content]
    content[0]["thinking"] += "!"
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
        converse(client, model="x", messages=[*USER, {"role": "assistant", "content": content}, *USER])


def test_answers_can_be_slow_for_people_who_watch(serve, chat):
    client = chat(serve(delay_s=0.001, chunk_chars=10))
    stream = complete(client, model="practice", stream=True)
    assert len(list(stream)) > 20
