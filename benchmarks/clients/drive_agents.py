"""Runs newer agent frameworks as `drive.py` does: `drive_agents.py FRAMEWORK FEATURE ...`, in the framework's
own environment. It imports nothing of ours but `drive.py`."""

from __future__ import annotations

import json
from typing import Any

from drive import TOKEN, Absent, asked, main, of
from drive import URL as ROOT_URL

URL = f"{ROOT_URL}/v1"


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: The city's name.
    """
    return f"21 degrees in {city}"


def make_place() -> Any:
    """Return the class of a form with one field."""
    return of("pydantic").create_model("Place", city=(str, ...))


def langgraph(feature: str) -> Any:
    model = of("langchain_openai").ChatOpenAI(model="whet", base_url=URL, api_key=TOKEN, max_retries=0)
    make = of("langchain.agents").create_agent
    tools = [get_weather] if feature == "tools" else []
    more = {"response_format": make_place()} if feature == "form" else {}
    if feature == "turns":
        more["checkpointer"] = of("langgraph.checkpoint.memory").InMemorySaver()
    agent = make(model, tools, **more)
    thread = {"configurable": {"thread_id": "1"}}
    if feature == "stream":
        chunks = agent.stream({"messages": [("user", "hello")]}, stream_mode="messages")
        pieces = [chunk.text for chunk, _ in chunks if chunk.text]
        return [str("".join(pieces)), len(pieces)]
    if feature == "turns":
        agent.invoke({"messages": [("user", "green tea")]}, thread)
    state = agent.invoke({"messages": [("user", asked(feature))]}, thread)
    if feature == "form":
        return state["structured_response"].model_dump()
    return str(state["messages"][-1].text)


def llama_index(feature: str) -> Any:
    core = of("llama_index.core.llms")
    model = of("llama_index.llms.openai_like").OpenAILike(
        model="whet", api_base=URL, api_key=TOKEN, is_chat_model=True, is_function_calling_model=True,
        max_retries=0,
    )  # fmt: skip
    said = [core.ChatMessage(role="user", content=asked(feature))]
    if feature == "stream":
        pieces = [chunk.delta for chunk in model.stream_chat(said) if chunk.delta]
        return ["".join(pieces), len(pieces)]
    if feature == "tools":
        tool = of("llama_index.core.tools").FunctionTool.from_defaults(get_weather)
        return str(model.predict_and_call([tool], user_msg=asked(feature)))
    if feature == "form":
        return model.as_structured_llm(make_place()).chat(said).raw.model_dump()
    if feature == "turns":
        first = [core.ChatMessage(role="user", content="green tea")]
        said = [*first, model.chat(first).message, *said]
    return model.chat(said).message.content


def smolagents(feature: str) -> Any:
    package = of("smolagents")
    model = package.OpenAIModel(model_id="whet", api_base=URL, api_key=TOKEN)
    said: list[Any] = [{"role": "user", "content": asked(feature)}]
    if feature == "stream":
        pieces = [delta.content for delta in model.generate_stream(said) if delta.content]
        return ["".join(pieces), len(pieces)]
    if feature == "form":
        raise Absent("its agents have no form")
    if feature == "tools":
        tool = package.tool(get_weather)
        answer = model.generate(said, tools_to_call_from=[tool])
        calls = [{"id": c.id, "type": "function", "function": {"name": c.function.name,
                  "arguments": json.dumps(_arguments(c))}} for c in answer.tool_calls]  # fmt: skip
        results = [tool(**_arguments(call)) for call in answer.tool_calls]
        return f"{calls[0]['function']['name']}: {results[0]}"
    if feature == "turns":
        first: list[Any] = [{"role": "user", "content": "green tea"}]
        said = [*first, {"role": "assistant", "content": model.generate(first).content}, *said]
    return model.generate(said).content


def _arguments(call: Any) -> dict[str, Any]:
    given = call.function.arguments
    return json.loads(given) if isinstance(given, str) else given


def haystack(feature: str) -> Any:
    chat = of("haystack.dataclasses").ChatMessage
    secret = of("haystack.utils").Secret.from_token(TOKEN)
    make = of("haystack.components.generators.chat").OpenAIChatGenerator
    pieces: list[str] = []
    more: dict[str, Any] = {}
    if feature == "stream":
        more["streaming_callback"] = lambda chunk: pieces.append(chunk.content) if chunk.content else None
    if feature == "form":
        more["generation_kwargs"] = {"response_format": make_place()}
    model = make(api_key=secret, model="whet", api_base_url=URL, max_retries=0, **more)
    said = [chat.from_user(asked(feature))]
    if feature == "tools":
        tool = of("haystack.tools").create_tool_from_function(get_weather)
        agent = of("haystack.components.agents").Agent(chat_generator=model, tools=[tool])
        return agent.run(messages=said)["messages"][-1].text
    if feature == "turns":
        first = [chat.from_user("green tea")]
        said = [*first, *model.run(first)["replies"], *said]
    text = model.run(said)["replies"][0].text
    if feature == "stream":
        return [text, len(pieces)]
    return json.loads(text) if feature == "form" else text


def instructor(feature: str) -> Any:
    client = of("instructor").from_openai(of("openai").OpenAI(base_url=URL, api_key=TOKEN, max_retries=0))
    if feature != "form":
        raise Absent("it only fills in forms")
    said = [{"role": "user", "content": asked(feature)}]
    return client.create(model="whet", response_model=make_place(), messages=said).model_dump()


def agno(feature: str) -> Any:
    model = of("agno.models.openai.like").OpenAILike(id="whet", base_url=URL, api_key=TOKEN, max_retries=0)
    more: dict[str, Any] = {"tools": {"tools": [get_weather]}, "form": {"output_schema": make_place()}}
    if feature == "turns":
        database = of("agno.db.in_memory").InMemoryDb()
        more["turns"] = {"db": database, "add_history_to_context": True, "session_id": "1"}
    agent = of("agno.agent").Agent(model=model, telemetry=False, **more.get(feature, {}))
    if feature == "stream":
        pieces = [event.content for event in agent.run("hello", stream=True) if event.content]
        return ["".join(pieces), len(pieces)]
    if feature == "turns":
        agent.run("green tea")
    content = agent.run(asked(feature)).content
    return content.model_dump() if feature == "form" else content


def strands(feature: str) -> Any:
    package = of("strands")
    model = of("strands.models.openai").OpenAIModel(
        client_args={"base_url": URL, "api_key": TOKEN, "max_retries": 0}, model_id="whet"
    )
    pieces: list[str] = []

    def keep(**event: Any) -> None:
        if event.get("data"):
            pieces.append(event["data"])

    tools = [package.tool(get_weather)] if feature == "tools" else []
    agent = package.Agent(model=model, tools=tools, callback_handler=keep)
    if feature == "form":
        return agent(asked(feature), structured_output_model=make_place()).structured_output.model_dump()
    if feature == "turns":
        agent("green tea")
    text = str(agent(asked(feature))).strip()
    return [text, len(pieces)] if feature == "stream" else text


def dspy(feature: str) -> Any:
    package = of("dspy")
    model = package.LM("openai/whet", api_base=URL, api_key=TOKEN, cache=False, num_retries=0)
    if feature in ("stream", "form", "tools"):
        raise Absent("its answers have a format that a scripted model does not write")
    said = [{"role": "user", "content": asked(feature)}]
    if feature == "turns":
        first = [{"role": "user", "content": "green tea"}]
        said = [*first, {"role": "assistant", "content": _dspy_text(model(messages=first))}, *said]
    return _dspy_text(model(messages=said))


def _dspy_text(outputs: Any) -> str:
    output = outputs[0]
    return output if isinstance(output, str) else output["text"]


FRAMEWORKS: dict[str, Any] = {
    "langgraph": langgraph,
    "llama-index": llama_index,
    "smolagents": smolagents,
    "haystack": haystack,
    "instructor": instructor,
    "agno": agno,
    "strands": strands,
    "dspy": dspy,
}


if __name__ == "__main__":
    main(FRAMEWORKS)
