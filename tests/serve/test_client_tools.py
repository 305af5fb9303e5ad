"""Frameworks' requests: tools of the program's own, forms of answers, histories sent whole."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.late import Late
from tests.serve.conftest import WAIT_S, Api
from tests.serve.test_openai import row_of, sent
from whet.store import sessions
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Late("anthropic"), Late("openai")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather", "parameters": SCHEMA},
}
ASKED = ScriptedReply("Let me ask.", tool_calls=(PracticeCall("get_weather", '{"city":"Rome"}', "c1"),))


@pytest.fixture(scope="session")
def claude() -> Iterator[anthropic.Anthropic]:
    http = anthropic.DefaultHttpxClient()
    with anthropic.Anthropic(api_key="unset", timeout=WAIT_S, http_client=http, max_retries=0) as client:
        yield client


def complete(client: openai.OpenAI, messages: list[Any], **more: Any) -> Any:
    made: Any = client.chat.completions.create(model="whet", messages=messages, **more)
    return made


def count(api: Api) -> int:
    return api.app.database.read_now(sessions.count_chats)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_clients_tool_is_called_and_its_result_goes_on_in_the_same_turn(
    api: Api, client: openai.OpenAI, is_streamed: bool
) -> None:
    (api.workspace / "note.txt").write_text("the code is 4711")
    api.say(
        ScriptedReply("", tool_calls=(PracticeCall("read_file", '{"path":"note.txt"}', "s1"),)),
        ASKED,
        ScriptedReply("Sunny."),
    )
    before = count(api)
    said: list[Any] = [{"role": "user", "content": "weather in Rome?"}]
    if is_streamed:
        with client.chat.completions.stream(model="whet", messages=said, tools=[WEATHER]) as stream:
            choice = stream.get_final_completion().choices[0]
    else:
        choice = complete(client, said, tools=[WEATHER]).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome"})
    said.append(choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
    said.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
    raw = client.chat.completions.with_raw_response.create(model="whet", messages=said, tools=[WEATHER])
    answer = raw.parse()
    assert answer.choices[0].message.content == "Sunny." and answer.choices[0].finish_reason == "stop"
    assert "21 degrees" in str(sent(api)[-1]["content"])
    row = row_of(api, raw.headers["x-whet-session"])
    assert (row.turns, row.tool_calls, count(api)) == (1, 2, before + 1)


def test_two_calls_of_one_step_are_handed_over_together(api: Api, client: openai.OpenAI) -> None:
    both = tuple(PracticeCall("get_weather", json.dumps({"city": c}), c) for c in ("Rome", "Oslo"))
    api.say(ScriptedReply("", tool_calls=both), ScriptedReply("Done."))
    said: list[Any] = [{"role": "user", "content": "both?"}]
    message = complete(client, said, tools=[WEATHER]).choices[0].message
    assert message.tool_calls and len(message.tool_calls) == 2
    said.append(message.model_dump(exclude_none=True, include={"role", "tool_calls"}))
    for call in reversed(message.tool_calls):
        said.append({"role": "tool", "tool_call_id": call.id, "content": f"for {call.id}"})
    done = complete(client, said, tools=[WEATHER])
    assert done.choices[0].message.content == "Done."
    results = [fields["content"] for fields in sent(api) if fields["role"] == "tool"]
    assert [call.id in text for call, text in zip(message.tool_calls, results, strict=True)] == [True, True]


def test_one_call_at_a_time_is_given_and_the_model_asked_once(api: Api, client: openai.OpenAI) -> None:
    both = tuple(PracticeCall("get_weather", json.dumps({"city": c}), c) for c in ("Rome", "Oslo"))
    api.say(ScriptedReply("", tool_calls=both), ScriptedReply("Done."))
    said: list[Any] = [{"role": "user", "content": "both?"}]
    cities: list[str] = []
    before, asked = count(api), api.model.count
    for _ in both:
        message = complete(client, said, tools=[WEATHER], parallel_tool_calls=False).choices[0].message
        assert message.tool_calls and len(message.tool_calls) == 1
        cities.append(json.loads(message.tool_calls[0].function.arguments)["city"])
        said.append(message.model_dump(exclude_none=True, include={"role", "tool_calls"}))
        said.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": cities[-1]})
    done = complete(client, said, tools=[WEATHER], parallel_tool_calls=False)
    assert done.choices[0].message.content == "Done." and sorted(cities) == ["Oslo", "Rome"]
    assert count(api) == before + 1 and api.model.count == asked + 2
    results = [fields["content"] for fields in sent(api) if fields["role"] == "tool"]
    assert ["Rome" in results[0], "Oslo" in results[1]] == [True, True]


def test_claudes_client_may_switch_parallel_calls_off(api: Api, claude: anthropic.Anthropic) -> None:
    both = tuple(PracticeCall("get_weather", json.dumps({"city": c}), c) for c in ("Rome", "Oslo"))
    api.say(ScriptedReply("", tool_calls=both))
    answer = claude.with_options(base_url=api.url, api_key=api.token).messages.create(
        model="whet",
        max_tokens=9,
        messages=[{"role": "user", "content": "both?"}],
        tools=[{"name": "get_weather", "input_schema": SCHEMA}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )
    assert [block.type for block in answer.content] == ["tool_use"]


@pytest.mark.parametrize("is_followed", [False, True])
def test_responses_hand_calls_over_as_items(api: Api, client: openai.OpenAI, is_followed: bool) -> None:
    api.say(ASKED, ScriptedReply("Sunny."))
    tool: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    with client.responses.stream(model="whet", input="weather?", tools=[tool]) as stream:
        first = stream.get_final_response()
    call: Any = first.output[-1]
    assert (call.type, call.name, call.arguments) == ("function_call", "get_weather", '{"city":"Rome"}')
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    if is_followed:
        done = client.responses.create(
            model="whet", input=[result], previous_response_id=first.id, tools=[tool]
        )
    else:
        items: Any = [{"role": "user", "content": "weather?"}]
        items += [one.model_dump(exclude_none=True) for one in first.output]
        done = client.responses.create(model="whet", input=[*items, result], tools=[tool])
    assert done.output_text == "Sunny." and "21 degrees" in str(sent(api)[-1]["content"])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_anthropics_client_runs_its_tool(api: Api, claude: anthropic.Anthropic, is_streamed: bool) -> None:
    claude = claude.with_options(base_url=api.url, api_key=api.token)
    api.say(ASKED, ScriptedReply("Sunny.", usage={"prompt_tokens": 11, "completion_tokens": 3}))
    tool: Any = {"name": "get_weather", "description": "Weather", "input_schema": SCHEMA}
    said: list[Any] = [{"role": "user", "content": "weather?"}]
    asked: dict[str, Any] = {"model": "whet", "max_tokens": 99, "tools": [tool], "system": "Be brief."}
    before = count(api)

    def ask() -> Any:
        if is_streamed:
            with claude.messages.stream(messages=said, **asked) as stream:
                return stream.get_final_message()
        return claude.messages.create(messages=said, **asked)

    first = ask()
    assert first.stop_reason == "tool_use" and first.content[0].text == "Let me ask."
    assert first.usage.output_tokens > 0
    call = first.content[1]
    assert (call.name, call.input) == ("get_weather", {"city": "Rome"})
    said.append(
        {"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in first.content]}
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
    said.append({"role": "user", "content": [result]})
    done = ask()
    assert (done.content[0].text, done.stop_reason) == ("Sunny.", "end_turn")
    assert done.usage.output_tokens == 3 and count(api) == before + 1
    assert claude.messages.count_tokens(model="whet", messages=said).input_tokens > 10


def test_anthropics_errors_are_in_its_shape(api: Api, claude: anthropic.Anthropic) -> None:
    wrong = claude.with_options(base_url=api.url, api_key="sk-whet-no")
    with pytest.raises(anthropic.AuthenticationError) as refused:
        wrong.messages.create(model="whet", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    body: Any = refused.value.body
    assert body["type"] == "error" and body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.BadRequestError, match="messages is empty"):
        claude.with_options(base_url=api.url, api_key=api.token).messages.create(
            model="whet", max_tokens=9, messages=[]
        )


def test_six_turns_of_a_client_that_sends_everything_are_one_session(api: Api, client: openai.OpenAI) -> None:
    api.say(*(ScriptedReply(f"answer {number} \n") for number in range(6)))
    before, said, texts = count(api), list[Any](), set[str]()
    for number in range(6):
        said.append({"role": "user", "content": f"question {number}"})
        raw = client.chat.completions.with_raw_response.create(model="whet", messages=said)
        texts.add(raw.headers["x-whet-session"])
        said.append({"role": "assistant", "content": (raw.parse().choices[0].message.content or "").strip()})
    assert len(texts) == 1 and count(api) == before + 1
    row = row_of(api, texts.pop())
    assert (row.turns, row.messages) == (6, 12)


def test_a_history_from_elsewhere_comes_with_its_calls_and_results(api: Api, client: openai.OpenAI) -> None:
    api.say(ScriptedReply("Cold."))
    call = {"id": "x1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    said: list[Any] = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x1", "content": "minus 4"},
    ]
    done = complete(client, said, tools=[WEATHER])
    assert done.choices[0].message.content == "Cold."
    roles = [fields["role"] for fields in sent(api)]
    assert roles == ["user", "assistant", "tool", "user"] and sent(api)[2]["content"] == "minus 4"


def test_an_answer_in_json_is_checked_and_asked_for_once_more(api: Api, client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    said: Any = [{"role": "user", "content": "where?"}]
    api.say(ScriptedReply('{"town": "Rome"}'), ScriptedReply('```json\n{"city": "Rome"}\n```'))
    done = complete(client, said, response_format=form)
    assert done.choices[0].message.content == '{"city": "Rome"}'
    assert "lacks city" in str(sent(api)[-1]["content"])
    api.say(ScriptedReply("Rome"), ScriptedReply("Rome!"))
    with pytest.raises(openai.InternalServerError, match="does not fit"):
        complete(client, said, response_format=form)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_text_ends_the_answer(api: Api, client: openai.OpenAI, is_streamed: bool) -> None:
    api.say(ScriptedReply("one two END three", pieces=9))
    said: Any = [{"role": "user", "content": "count"}]
    if is_streamed:
        with client.chat.completions.stream(model="whet", messages=said, stop="END") as stream:
            choice: Any = stream.get_final_completion().choices[0]
    else:
        choice = complete(client, said, stop=["END"]).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("one two ", "stop")


def test_an_answer_that_a_stop_text_cut_is_counted(api: Api, client: openai.OpenAI) -> None:
    """The server's own count comes at an answer's end only."""
    api.say(ScriptedReply("one two END three four five", pieces=9, fault=Fault(stall_after=7)))
    said: Any = [{"role": "user", "content": "count"}]
    done = client.chat.completions.with_raw_response.create(model="whet", messages=said, stop="END")
    api.model.release()
    answer, row = done.parse(), row_of(api, done.headers["x-whet-session"])
    assert answer.choices[0].message.content == "one two "
    assert answer.usage and answer.usage.prompt_tokens > 1_000 and answer.usage.completion_tokens > 0
    assert row.usage.prompt_tokens == answer.usage.prompt_tokens


def test_a_conversation_that_is_too_long_is_said_so(api: Api, client: openai.OpenAI) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    what = "This model's maximum context length is 10 tokens. However, your messages resulted in 99 tokens."
    fault = Fault(status=400, message=what, code="context_length_exceeded")
    api.say(*(ScriptedReply(fault=fault) for _ in range(6)))
    with pytest.raises(openai.BadRequestError) as refused:
        complete(client, said)
    assert refused.value.code == "context_length_exceeded"
    assert "prompt is too long: " in refused.value.message  # LangChain goes by words, not by the code


def test_results_that_come_after_the_turn_are_said_in_the_next(api: Api, client: openai.OpenAI) -> None:
    api.say(ASKED, ScriptedReply("Sunny."))
    said: list[Any] = [{"role": "user", "content": "weather?"}]
    raw = client.chat.completions.with_raw_response.create(model="whet", messages=said, tools=[WEATHER])
    session_id, message = raw.headers["x-whet-session"], raw.parse().choices[0].message
    assert message.tool_calls and api.hosted.is_running(session_id)
    with api.http() as http:
        assert http.post(f"/api/sessions/{session_id}/cancel").json() == {"cancelled": True}
    said.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
    said.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21 degrees"})
    raw = client.chat.completions.with_raw_response.create(model="whet", messages=said, tools=[WEATHER])
    assert raw.parse().choices[0].message.content == "Sunny."
    assert raw.headers["x-whet-session"] == session_id and row_of(api, session_id).turns == 2
    assert "21 degrees" in str(sent(api)[-1]["content"])


def test_anthropics_json_form_its_list_of_models_and_its_count(api: Api, claude: anthropic.Anthropic) -> None:
    client = claude.with_options(base_url=api.url, api_key=api.token)
    api.say(ScriptedReply("Rome"), ScriptedReply('{"city": "Rome"}'))
    said: list[Any] = [{"role": "user", "content": "where?"}]
    form: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    done: Any = client.messages.create(
        model="whet", max_tokens=9, messages=said, extra_body={"output_config": form}
    )
    assert done.content[0].text == '{"city": "Rome"}'
    assert [(model_info.id, model_info.display_name) for model_info in client.models.list()] == [
        ("whet", "whet")
    ]
    large = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(500_000)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": large}
    image: Any = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert client.messages.count_tokens(model="whet", messages=image).input_tokens < 2_000
    with pytest.raises(anthropic.BadRequestError, match="mcp_servers is not supported"):
        client.messages.create(
            model="whet", max_tokens=9, messages=said, extra_body={"mcp_servers": [{"name": "x"}]}
        )


def test_a_request_of_instructions_alone_is_answered_and_an_image_is_what_its_bytes_say(
    api: Api, client: openai.OpenAI
) -> None:
    api.say(ScriptedReply("A title."), ScriptedReply("A dot."))
    alone: Any = [{"role": "developer", "content": "Give a title."}]
    assert complete(client, alone).choices[0].message.content
    dot = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    url = {"url": f"data:image/jpg;name=a.jpg;base64,{dot}"}
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    assert complete(client, image).choices[0].message.content
    assert "data:image/png" in str(sent(api)[-1]["content"])
