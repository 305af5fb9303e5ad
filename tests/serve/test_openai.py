"""OpenAI's own client, unmodified, against the API; and one front end's requests as it sends them."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.late import Late
from tests.serve.conftest import Api
from tests.support import ended
from whet.store import sessions
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply, server_error
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 24).decode()


def row_of(api: Api, session_id: str) -> sessions.SessionRow:
    return api.app.database.read_now(lambda db: sessions.get(db, session_id))


def sent(api: Api, number: int = -1) -> list[dict[str, Any]]:
    """The messages of a request to the model, without the system prompt."""
    return api.model.requests[number].json_body["messages"][1:]


def texts(api: Api, number: int = -1) -> list[tuple[str, str]]:
    """Role and first line of what the model was sent."""
    return [(field["role"], str(field["content"]).partition("\n")[0]) for field in sent(api, number)]


def ask(client: openai.OpenAI, *said: str, **more: Any) -> Any:
    """Ask with alternating messages, the last one the user's."""
    messages: Any = [
        {"role": "user" if (len(said) - number) % 2 else "assistant", "content": text}
        for number, text in enumerate(said)
    ]
    made: Any = client.chat.completions.with_raw_response.create(
        model="whet",
        messages=messages,
        **more,  # type: ignore[arg-type]
    )
    return made


def test_a_plain_question_is_a_session_with_one_turn(api: Api, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["whet"]
    api.say(ScriptedReply("Four.", usage={"prompt_tokens": 4_011, "completion_tokens": 3}))
    raw = ask(client, "two and two?")
    answer = raw.parse()
    assert answer.choices[0].message.content == "Four."
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4_011, 3)
    row = row_of(api, raw.headers["x-whet-session"])
    assert (row.turns, row.source, row.title) == (1, "api", "two and two?")


def test_tools_run_here_and_the_client_sees_text_only(api: Api, client: openai.OpenAI) -> None:
    (api.workspace / "note.txt").write_text("the code is 4711")
    call = PracticeCall("read_file", '{"path":"note.txt"}', "c1")
    # without usage of its own a reply counts the request's tokens, and the prompt holds the day
    first_usage, last_usage = ({"prompt_tokens": count} for count in (4_011, 4_093))
    script = (
        ScriptedReply("Let me look.", tool_calls=(call,), usage=first_usage),
        ScriptedReply("It is 4711.", pieces=3, usage=last_usage),
    )
    api.say(*script)
    whole = ask(client, "what is the code?").parse()
    api.say(*script)
    chunks = list(
        client.chat.completions.create(
            model="whet",
            messages=[{"role": "user", "content": "what is the code?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == whole.choices[0].message.content == "Let me look.\n\nIt is 4711."
    assert all(c.choices[0].delta.tool_calls is None for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert whole.usage.prompt_tokens == 4_011 + 4_093
    assert "4711" in str(sent(api)[-1]["content"])  # the tool's result, as the model got it


def test_a_clients_tools_are_no_matter_where_it_wants_no_calls(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("Fine."), ScriptedReply("Fine."))
    function: Any = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    completion = client.chat.completions.create(
        model="whet",
        messages=[{"role": "user", "content": "hi"}],
        tools=[{"type": "function", "function": function}],
        tool_choice="none",
    )
    assert completion.choices[0].message.content == "Fine."
    answered = client.responses.create(
        model="whet",
        input="hi",
        tools=[{"type": "function", "strict": False, "name": "f", "parameters": function["parameters"]}],
        tool_choice="none",
    )
    assert answered.output_text == "Fine."


def test_a_session_goes_on_by_header_and_by_user(api: Api, client: openai.OpenAI) -> None:
    api.say(
        ScriptedReply("A1"),
        ScriptedReply("A2"),
        ScriptedReply("A3"),
        ScriptedReply("A4"),
        ScriptedReply("A5"),
    )
    first = ask(client, "q1")
    session_id = first.headers["x-whet-session"]
    header = {"X-Whet-Session": session_id}
    assert ask(client, "q2", extra_headers=header).headers["x-whet-session"] == session_id
    # The whole history again, as most clients send it: only what is new is said.
    ask(client, "q1", "A1", "q2", "A2", "q3", extra_headers=header)
    assert [line for _, line in texts(api)] == ["q1", "A1", "q2", "A2", "q3"]
    by_user = ask(client, "hello", user="ada").headers["x-whet-session"]
    assert by_user != session_id
    assert ask(client, "again", user="ada").headers["x-whet-session"] == by_user
    assert [line for _, line in texts(api)] == ["hello", "A4", "again"]


def test_what_a_client_said_elsewhere_is_history_of_a_fresh_session(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("A2"), ScriptedReply("A3"))
    raw = ask(client, "old question", "old answer", "new question")
    assert texts(api) == [("user", "old question"), ("assistant", "old answer"), ("user", "new question")]
    row = row_of(api, raw.headers["x-whet-session"])
    assert (row.turns, row.messages, row.title) == (2, 4, "old question")
    header = {"X-Whet-Session": row.id}
    ask(client, "old question", "old answer", "new question", "A2", "newest", extra_headers=header)
    assert [line for _, line in texts(api)][-2:] == ["A2", "newest"]


def test_a_clients_system_prompt_is_given_once_and_replaces_nothing(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("A1"), ScriptedReply("A2"), ScriptedReply("A3"))

    def say(system: str, *said: str) -> None:
        messages: list[Any] = [{"role": "system", "content": system}]
        messages += [
            {"role": "user" if number % 2 == 0 else "assistant", "content": text}
            for number, text in enumerate(said)
        ]
        client.chat.completions.create(model="whet", messages=messages, user="with-system")

    say("Talk like a pirate.", "q1")
    own = api.model.requests[-1].json_body["messages"][0]["content"]
    assert "pirate" not in own and "pirate" in sent(api)[0]["content"]
    say("Talk like a pirate.", "q1", "A1", "q2")
    assert "pirate" not in sent(api)[-1]["content"] and sent(api)[-1]["content"].startswith("q2")
    say("Talk like a poet.", "q1", "A1", "q2", "A2", "q3")
    assert "poet" in sent(api)[-1]["content"]
    assert len(sent(api)) == 5


def test_an_image_reaches_the_model(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("A cat."))
    parts: Any = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    client.chat.completions.create(model="whet", messages=[{"role": "user", "content": parts}])
    assert {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}} in sent(api)[-1][
        "content"
    ]


def test_responses_go_on_from_the_previous_one(api: Api, client: openai.OpenAI) -> None:
    api.say(*(ScriptedReply(f"A{number}") for number in range(1, 5)))
    first = client.responses.create(model="whet", input="q1", instructions="Be brief.")
    assert first.output_text == "A1" and first.status == "completed"
    assert first.usage is not None and first.usage.total_tokens > 0
    second = client.responses.create(
        model="whet", input=[{"role": "user", "content": "q2"}], previous_response_id=first.id
    )
    assert second.output_text == "A2"
    assert [line for _, line in texts(api)][1:] == ["A1", "q2"]
    copied = client.responses.create(model="whet", input="q3", previous_response_id=first.id)
    assert copied.output_text == "A3" and [line for _, line in texts(api)][1:] == ["A1", "q3"]
    hidden = client.responses.with_raw_response.create(model="whet", input="secret", store=False)
    assert row_of(api, hidden.headers["x-whet-session"]).private


def test_a_streamed_response_has_an_item_for_each_step(api: Api, client: openai.OpenAI) -> None:
    api.say(
        ScriptedReply(
            "Looking.", tool_calls=(PracticeCall("search_files", '{"pattern":"x","target":"files"}', "c1"),)
        ),
        ScriptedReply("Nothing there.", pieces=4),
    )
    with client.responses.stream(model="whet", input="look") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert [item.content[0].text for item in final.output] == ["Looking.", "Nothing there."]  # type: ignore[union-attr]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.done") == 2
    assert not any("call" in kind for kind in kinds)


def test_a_failing_model_is_told_once_and_not_tried_by_the_client(api: Api, client: openai.OpenAI) -> None:
    api.say(server_error(), ScriptedReply("never"))
    with pytest.raises(openai.InternalServerError) as failed:
        ask(client.with_options(max_retries=2), "q")
    assert failed.value.code == "turn_failed" and api.model.count == 1
    api.say(server_error(), ScriptedReply("never"))
    with pytest.raises(openai.InternalServerError):  # before the first piece there is still a status
        client.chat.completions.create(model="whet", messages=[{"role": "user", "content": "q"}], stream=True)
    api.say(ScriptedReply("Half an ans", pieces=4, fault=Fault(cut_after=3)), server_error())
    with pytest.raises(openai.APIError):
        list(
            client.chat.completions.create(
                model="whet", messages=[{"role": "user", "content": "q"}], stream=True
            )
        )


@pytest.fixture
def hasty(tmp_path: Path, shared_model: PracticeServer) -> Iterator[Callable[[float], Api]]:
    """Start an API whose streams beat every millisecond, less than any request to a model takes."""
    apis: list[Api] = []

    def start(head_wait_s: float) -> Api:
        apis.append(Api(tmp_path, shared_model, beat_s=0.001, head_wait_s=head_wait_s))
        return apis[0]

    yield start
    apis[0].close()


def ask_stalled(
    api: Api, path: str, body: dict[str, Any], heard: list[str], *, release_at: int
) -> httpx2.Response:
    """Send a request whose model stalls and then fails; it is released once `release_at` lines were heard."""
    api.say(
        ScriptedReply("never", fault=Fault(status=500, stall_after=-1, message="The server had an error"))
    )
    with (
        api.http() as http,
        http.stream("POST", path, json={"model": "whet", "stream": True, **body}) as answer,
    ):
        for line in answer.iter_lines():
            heard.append(line)
            if len(heard) == release_at:
                api.model.wait_for_stall()  # a beat may go out before the request is at the model
                api.model.release()
        return answer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "q"}]}),
        ("/v1/responses", {"input": "q"}),
    ],
)
def test_a_model_that_fails_after_many_beats_is_still_a_status(
    hasty: Callable[[float], Api], path: str, body: dict[str, Any]
) -> None:
    api = hasty(30.0)
    heard: list[str] = []
    api.say()  # the stalls of earlier tests do not count
    asking = threading.Thread(
        target=lambda: statuses.append(ask_stalled(api, path, body, heard, release_at=0))
    )
    statuses: list[httpx2.Response] = []
    asking.start()
    api.model.wait_for_stall()
    api.model.release()
    ended(asking, "the answer")
    assert statuses[0].status_code == 502
    assert not any(line.startswith(":") for line in heard)


def test_a_model_silent_for_too_long_gets_a_stream_ending_in_failure(
    hasty: Callable[[float], Api],
) -> None:
    api = hasty(0.001)
    heard: list[str] = []
    body = {"messages": [{"role": "user", "content": "q"}]}
    answer = ask_stalled(api, "/v1/chat/completions", body, heard, release_at=1)
    assert answer.status_code == 200 and heard[0] == ": beat"
    assert any('"turn_failed"' in line for line in heard) and heard[-2:] == ["data: [DONE]", ""]


def test_two_requests_for_one_session_are_answered_in_order(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("A1", fault=Fault(stall_after=-1)), ScriptedReply("A2"))
    answers: dict[str, str] = {}  # not a list: which thread is the first to note its answer is chance

    def say(text: str) -> None:
        answers[text] = str(ask(client, text, user="both").parse().choices[0].message.content)

    first, second = (threading.Thread(target=say, args=(text,)) for text in ("q1", "q2"))
    first.start()
    api.model.wait_for_stall()
    second.start()
    api.model.release()
    ended(first, "the first answer")
    ended(second, "the second answer")
    assert answers == {"q1": "A1", "q2": "A2"}
    assert [line for _, line in texts(api)] == ["q1", "A1", "q2"]


def open_webui(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The body of a request of Open WebUI's backend (routers/openai.py of version 0.6)."""
    return {"stream": True, "model": "whet", "messages": messages, **more}


def test_open_webui_talks_in_one_session_a_chat_and_its_chores_stay_out_of_it(api: Api) -> None:
    api.say(ScriptedReply("Hello Ada."), ScriptedReply('{"title": "Greeting"}'), ScriptedReply("Fine."))
    headers = {"X-OpenWebUI-Chat-Id": "6a1c-88", "X-OpenWebUI-User-Name": "Ada", "accept": "*/*"}
    fields = [{"role": "user", "content": "hi"}]
    with api.http() as http:
        models = http.get("/v1/models", headers=headers).json()
        assert models["data"][0]["id"] == "whet"
        first = http.post(
            "/v1/chat/completions",
            headers=headers,
            json=open_webui(fields, stream_options={"include_usage": True}),
        )
        assert first.headers["content-type"] == "text/event-stream" and first.text.endswith(
            "data: [DONE]\n\n"
        )
        chore = [{"role": "user", "content": "### Task:\nGenerate a concise title\n<chat_history>..."}]
        body = {**open_webui(chore, max_completion_tokens=1000), "stream": False}
        title = http.post("/v1/chat/completions", headers=headers, json=body)
        fields += [
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": "how are you?"},
        ]
        second = http.post("/v1/chat/completions", headers=headers, json=open_webui(fields))
    session_id = first.headers["x-whet-session"]
    assert second.headers["x-whet-session"] == session_id != title.headers["x-whet-session"]
    assert title.json()["choices"][0]["message"]["content"] == '{"title": "Greeting"}'
    aside = row_of(api, title.headers["x-whet-session"])
    assert aside.private and aside.kind == "child" and aside.usage.completion_tokens
    with api.http() as http:
        listed = [session["id"] for session in http.get("/api/sessions").json()["sessions"]]
    assert session_id in listed and aside.id not in listed
    assert [line for _, line in texts(api)] == ["hi", "Hello Ada.", "how are you?"]
