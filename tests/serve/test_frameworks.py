"""Frameworks as their users have them, against the API; those that are not installed are skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.conftest import Api
from tests.serve.test_client_tools import ASKED, count
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply


def test_langchain_runs_its_tools_and_stays_in_one_session(api: Api) -> None:
    langchain: Any = pytest.importorskip("langchain_openai")
    messages: Any = pytest.importorskip("langchain_core.messages")
    model = langchain.ChatOpenAI(model="whet", base_url=f"{api.url}/v1", api_key=api.token, max_retries=0)

    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"21 degrees in {city}"

    api.say(ASKED, ScriptedReply("Sunny."), ScriptedReply("Bye."))
    before, bound = count(api), model.bind_tools([get_weather])
    said: list[Any] = [messages.HumanMessage("weather?")]
    said.append(bound.invoke(said))
    [call] = said[-1].tool_calls
    said.append(messages.ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]))
    said.append(bound.invoke(said))
    assert said[-1].content == "Sunny."
    said.append(messages.HumanMessage("thanks"))
    assert "".join(str(chunk.content) for chunk in bound.stream(said)) == "Bye."
    assert count(api) == before + 1
    form = {"title": "place", "type": "object", "properties": {"city": {"type": "string"}}}
    api.say(ScriptedReply('{"city": "Rome"}'))
    shaped = model.with_structured_output({**form, "description": "A place."}, method="json_schema")
    assert shaped.invoke("where?") == {"city": "Rome"}


def test_pydantic_ai_runs_its_tools_and_reads_its_output(api: Api) -> None:
    ai: Any = pytest.importorskip("pydantic_ai")
    chat: Any = pytest.importorskip("pydantic_ai.models.openai")
    provider: Any = pytest.importorskip("pydantic_ai.providers.openai")
    model = chat.OpenAIChatModel(
        "whet", provider=provider.OpenAIProvider(base_url=f"{api.url}/v1", api_key=api.token)
    )
    agent = ai.Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"21 degrees in {city}"

    before = count(api)
    api.say(ASKED, ScriptedReply("Sunny."), ScriptedReply("Bye."))
    first = agent.run_sync("weather?")
    assert first.output == "Sunny."
    assert agent.run_sync("thanks", message_history=first.all_messages()).output == "Bye."
    assert count(api) == before + 1
    call = PracticeCall("final_result", '{"response": 7}', "f1")
    api.say(ScriptedReply("", tool_calls=(call,)))
    assert ai.Agent(model, output_type=int).run_sync("how many?").output == 7
