"""Runs in the frameworks' environment: `drive.py FRAMEWORK FEATURE` prints {"said": ...}, {"none": why} or
{"error": ...} as a line of JSON. It imports nothing of ours."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

URL, TOKEN = os.environ["WHET_URL"], os.environ["WHET_TOKEN"]
DOT = os.environ["WHET_DOT"]
SCHEMA: dict[str, Any] = {
    "title": "Place",
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ASKED = {
    "tools": "what is the weather in Rome?",
    "parallel": "what is the weather in two cities?",
    "form": "fill in a form",
    "stop": "count, please",
    "image": "what is in this?",
    "too_long": "far too much",
    "turns": "what have I began with?",
}


class Absent(Exception):
    """The framework does not offer it."""


def asked(feature: str) -> str:
    return ASKED.get(feature, "hello")


def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"21 degrees in {city}"


def of(name: str) -> Any:
    return importlib.import_module(name)


def refused(call: Any) -> str:
    try:
        call()
    except TypeError:
        raise  # it did not come to a request
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        code = getattr(error, "code", "")
        return f"{getattr(error, 'status_code', '')} {code} {error!r} {error}"
    return "nothing was refused"


def openai_chat(feature: str) -> Any:
    client = of("openai").OpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0)
    create = client.chat.completions.create
    said: list[Any] = [{"role": "user", "content": asked(feature)}]
    if feature == "stream":
        pieces = [
            chunk.choices[0].delta.content
            for chunk in create(model="whet", messages=said, stream=True)
            if chunk.choices and chunk.choices[0].delta.content
        ]
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        function = {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA}
        more = {"model": "whet", "tools": [{"type": "function", "function": function}]}
        answer = create(messages=said, **more).choices[0].message
        said.append(answer)
        for call in answer.tool_calls:
            result = get_weather(**json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return create(messages=said, **more).choices[0].message.content
    if feature == "form":
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
        return json.loads(
            create(model="whet", messages=said, response_format=form).choices[0].message.content
        )
    if feature == "stop":
        return create(model="whet", messages=said, stop=["three"]).choices[0].message.content
    if feature == "image":
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DOT}"}}
        said[0]["content"] = [{"type": "text", "text": asked(feature)}, picture]
    if feature == "too_long":
        return refused(lambda: create(model="whet", messages=said))
    if feature == "turns":
        said[0]["content"] = "green tea"
        first = create(model="whet", messages=said).choices[0].message
        said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": asked(feature)}]
    answer = create(model="whet", messages=said)
    if feature == "usage":
        return [answer.usage.prompt_tokens, answer.usage.completion_tokens]
    return answer.choices[0].message.content


def openai_responses(feature: str) -> Any:
    client = of("openai").OpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0)
    create = client.responses.create
    said: list[Any] = [{"role": "user", "content": asked(feature)}]
    if feature == "stream":
        with client.responses.stream(model="whet", input=said) as stream:
            pieces = [one.delta for one in stream if one.type == "response.output_text.delta"]
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
        answer = create(model="whet", input=said, tools=[tool])
        said += answer.output
        for call in answer.output:
            if call.type == "function_call":
                result = get_weather(**json.loads(call.arguments))
                said.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        return create(model="whet", input=said, tools=[tool]).output_text
    if feature == "form":
        form = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
        return json.loads(create(model="whet", input=said, text={"format": form}).output_text)
    if feature == "stop":
        raise Absent("the protocol has no stop")
    if feature == "image":
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{DOT}", "detail": "auto"}
        said[0]["content"] = [{"type": "input_text", "text": asked(feature)}, picture]
    if feature == "too_long":
        return refused(lambda: create(model="whet", input=said))
    if feature == "turns":
        said[0]["content"] = "green tea"
        first = create(model="whet", input=said)
        return create(model="whet", previous_response_id=first.id, input=asked(feature)).output_text
    answer = create(model="whet", input=said)
    return (
        [answer.usage.input_tokens, answer.usage.output_tokens] if feature == "usage" else answer.output_text
    )


def anthropic_messages(feature: str) -> Any:
    client = of("anthropic").Anthropic(base_url=URL, api_key=TOKEN, max_retries=0)
    more: dict[str, Any] = {"model": "whet", "max_tokens": 999}
    said: list[Any] = [{"role": "user", "content": asked(feature)}]
    if feature == "stream":
        with client.messages.stream(messages=said, **more) as stream:
            pieces = list(stream.text_stream)
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        more["tools"] = [{"name": "get_weather", "description": "Weather", "input_schema": SCHEMA}]
        answer = client.messages.create(messages=said, **more)
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": get_weather(**one.input)}
            for one in answer.content
            if one.type == "tool_use"
        ]
        said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    if feature == "form":
        more["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return json.loads(client.messages.create(messages=said, **more).content[0].text)
    if feature == "stop":
        more["stop_sequences"] = ["three"]
    if feature == "image":
        source = {"type": "base64", "media_type": "image/png", "data": DOT}
        said[0]["content"] = [{"type": "image", "source": source}, {"type": "text", "text": asked(feature)}]
    if feature == "too_long":
        return refused(lambda: client.messages.create(messages=said, **more))
    if feature == "turns":
        said[0]["content"] = "green tea"
        first = client.messages.create(messages=said, **more)
        said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": asked(feature)}]
    answer = client.messages.create(messages=said, **more)
    if feature == "usage":  # what a cache held is counted apart
        used = answer.usage
        held = (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
        return [used.input_tokens + held, used.output_tokens]
    return answer.content[0].text


def litellm(feature: str, wire: str) -> Any:
    lite = of("litellm")
    more: dict[str, Any] = {"model": f"{wire}/whet", "api_key": TOKEN, "num_retries": 0}
    more["api_base"] = f"{URL}/v1" if wire == "openai" else URL
    said: list[Any] = [{"role": "user", "content": asked(feature)}]
    if feature == "stream":
        chunks = lite.completion(messages=said, stream=True, **more)
        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        function = {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA}
        more["tools"] = [{"type": "function", "function": function}]
        answer = lite.completion(messages=said, **more).choices[0].message
        said.append(answer.model_dump())
        for call in answer.tool_calls:
            result = get_weather(**json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if feature == "form":
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
        return json.loads(
            lite.completion(messages=said, response_format=form, **more).choices[0].message.content
        )
    if feature == "stop":
        more["stop"] = ["three"]
    if feature == "image":
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DOT}"}}
        said[0]["content"] = [{"type": "text", "text": asked(feature)}, picture]
    if feature == "too_long":
        return refused(lambda: lite.completion(messages=said, **more))
    if feature == "turns":
        said[0]["content"] = "green tea"
        first = lite.completion(messages=said, **more).choices[0].message.content
        said += [{"role": "assistant", "content": first}, {"role": "user", "content": asked(feature)}]
    answer = lite.completion(messages=said, **more)
    if feature == "usage":
        return [answer.usage.prompt_tokens, answer.usage.completion_tokens]
    return answer.choices[0].message.content


def llm(feature: str) -> Any:
    package = of("llm")
    kind = of("llm.default_plugins.openai_models").Chat
    model = kind(
        "whet",
        model_name="whet",
        api_base=f"{URL}/v1",
        vision=True,
        supports_tools=True,
        supports_schema=True,
    )
    model.key = TOKEN
    if feature == "stream":
        pieces = [piece for piece in model.prompt(asked(feature)) if piece]
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        return model.chain(asked(feature), tools=[get_weather]).text()
    if feature == "form":
        return json.loads(model.prompt(asked(feature), schema=SCHEMA).text())
    if feature == "stop":
        return model.prompt(asked(feature), stop="three").text()
    if feature == "image":
        data = of("base64").b64decode(DOT)
        return model.prompt(
            asked(feature), attachments=[package.Attachment(content=data, type="image/png")]
        ).text()
    if feature == "too_long":
        return refused(lambda: model.prompt(asked(feature), stream=False).text())
    if feature == "turns":
        talk = model.conversation()
        talk.prompt("green tea").text()
        return talk.prompt(asked(feature)).text()
    answer = model.prompt(asked(feature))
    text = answer.text()
    return [answer.usage().input, answer.usage().output] if feature == "usage" else text


def agents(feature: str, *, responses: bool) -> Any:
    sdk = of("agents")
    sdk.set_tracing_disabled(True)
    client = of("openai").AsyncOpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0)
    kind = sdk.OpenAIResponsesModel if responses else sdk.OpenAIChatCompletionsModel
    more: dict[str, Any] = {"name": "test", "model": kind(model="whet", openai_client=client)}
    if feature in ("tools", "parallel"):
        more["tools"] = [sdk.function_tool(get_weather)]
    if feature == "form":
        place = of("pydantic").create_model("Place", city=(str, ...))
        more["output_type"] = place
    if feature == "stop":
        raise Absent("it has no setting for it")
    agent = sdk.Agent(**more)
    if feature == "stream":

        async def streamed() -> list[str]:
            result = sdk.Runner.run_streamed(agent, asked(feature))
            return [
                event.data.delta
                async for event in result.stream_events()
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
            ]

        pieces = asyncio.run(streamed())
        return ["".join(pieces), len(pieces)]
    given: Any = asked(feature)
    if feature == "image":
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{DOT}", "detail": "auto"}
        given = [{"role": "user", "content": [{"type": "input_text", "text": given}, picture]}]
    if feature == "too_long":
        return refused(lambda: sdk.Runner.run_sync(agent, given))
    if feature == "turns":
        first = sdk.Runner.run_sync(agent, "green tea")
        given = [*first.to_input_list(), {"role": "user", "content": asked(feature)}]
    result = sdk.Runner.run_sync(agent, given)
    if feature == "usage":
        usage = result.context_wrapper.usage
        return [usage.input_tokens, usage.output_tokens]
    return result.final_output.model_dump() if feature == "form" else result.final_output


def langchain(feature: str, kind: str, url: str) -> Any:
    core = of("langchain_core.messages")
    package, _, name = kind.rpartition(".")
    model = getattr(of(package), name)(model="whet", base_url=url, api_key=TOKEN, max_retries=0)
    said: list[Any] = [core.HumanMessage(asked(feature))]
    if feature == "stream":
        pieces = [str(one.text) for one in model.stream(said) if str(one.text)]
        return ["".join(pieces), len(pieces)]
    if feature in ("tools", "parallel"):
        model = model.bind_tools([get_weather])
        said.append(model.invoke(said))
        for call in said[-1].tool_calls:
            said.append(core.ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]))
    if feature == "form":
        shape = {**SCHEMA, "description": "A place."}
        return model.with_structured_output(shape, method="json_schema").invoke(said)
    if feature == "stop":
        return str(model.invoke(said, stop=["three"]).text)
    if feature == "image":
        picture = {"type": "image", "base64": DOT, "mime_type": "image/png"}
        said = [core.HumanMessage(content=[{"type": "text", "text": asked(feature)}, picture])]
    if feature == "too_long":
        return refused(lambda: model.invoke(said))
    if feature == "turns":
        first = [core.HumanMessage("green tea")]
        said = [*first, model.invoke(first), *said]
    answer = model.invoke(said)
    if feature == "usage":
        return [answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]]
    return str(answer.text)


def pydantic_model(wire: str) -> Any:
    if wire == "anthropic":
        client = of("anthropic").AsyncAnthropic(base_url=URL, api_key=TOKEN, max_retries=0)
        provider = of("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=client)
        return of("pydantic_ai.models.anthropic").AnthropicModel("whet", provider=provider)
    client = of("openai").AsyncOpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0)
    provider = of("pydantic_ai.providers.openai").OpenAIProvider(openai_client=client)
    models = of("pydantic_ai.models.openai")
    kind = models.OpenAIResponsesModel if wire == "responses" else models.OpenAIChatModel
    return kind("whet", provider=provider)


def pydantic_ai(feature: str, wire: str) -> Any:
    ai, model = of("pydantic_ai"), pydantic_model(wire)
    place = of("pydantic").create_model("Place", city=(str, ...))
    more: dict[str, Any] = {"tools": {"tools": [get_weather]}, "form": {"output_type": place}}
    more["parallel"] = more["tools"]
    agent = ai.Agent(model, **more.get(feature, {}))
    if feature == "stream":

        async def streamed() -> list[str]:
            async with agent.run_stream(asked(feature)) as result:
                return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

        pieces = asyncio.run(streamed())
        return ["".join(pieces), len(pieces)]
    if feature == "stop":
        if wire == "responses":
            raise Absent("the protocol has no stop")
        return agent.run_sync(asked(feature), model_settings={"stop_sequences": ["three"]}).output
    given: Any = asked(feature)
    history: Any = None
    if feature == "image":
        data = of("base64").b64decode(DOT)
        given = [given, ai.BinaryContent(data=data, media_type="image/png")]
    if feature == "too_long":
        return refused(lambda: agent.run_sync(given))
    if feature == "turns":
        history = agent.run_sync("green tea").all_messages()
    result: Any = agent.run_sync(given, message_history=history)
    if feature == "usage":
        return [result.usage.input_tokens, result.usage.output_tokens]
    return dict(result.output) if feature == "form" else result.output


FRAMEWORKS: dict[str, Any] = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic_messages,
    "litellm": lambda feature: litellm(feature, "openai"),
    "litellm-anthropic": lambda feature: litellm(feature, "anthropic"),
    "llm": llm,
    "agents": lambda feature: agents(feature, responses=True),
    "agents-chat": lambda feature: agents(feature, responses=False),
    "langchain": lambda feature: langchain(feature, "langchain_openai.ChatOpenAI", f"{URL}/v1"),
    "langchain-anthropic": lambda feature: langchain(feature, "langchain_anthropic.ChatAnthropic", URL),
    "pydantic-ai": lambda feature: pydantic_ai(feature, "chat"),
    "pydantic-ai-responses": lambda feature: pydantic_ai(feature, "responses"),
    "pydantic-ai-anthropic": lambda feature: pydantic_ai(feature, "anthropic"),
}


def main(frameworks: Mapping[str, Callable[[str], Any]]) -> None:
    """Drive features of a framework, one after the other, so that its import is paid once."""
    drive = frameworks[sys.argv[1]]
    for feature in sys.argv[2:]:
        try:
            said: dict[str, Any] = {"said": drive(feature)}
        except Absent as error:
            said = {"none": str(error)}
        except Exception as error:  # noqa: BLE001 - a cell of the table
            said = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps({"feature": feature, **said}), flush=True)


if __name__ == "__main__":
    main(FRAMEWORKS)
