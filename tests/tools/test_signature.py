"""A typed function becomes a tool: schema, lenient reading, exact refusals."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tests.support import cancel_task
from tests.tools.running import context
from whet.contract.errors import BadInput
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.lanes import ToolPool
from whet.tools.signature import UNSENT, suggest, tool


class Item(msgspec.Struct):
    text: Annotated[str, "What to do"]
    status: Literal["open", "done"] = "open"


def call(made: Tool, **arguments: Any) -> ToolOutput:
    return asyncio.run(made.run(context(), arguments))


@tool(toolset="file", effects={"read"}, parallel=True, repeatable=True, timeout_s=30)
async def sample(
    ctx: ToolContext,
    path: Annotated[str, "File"],
    count: Annotated[int, msgspec.Meta(ge=1)] = 5,
    ratio: float | None = None,
    deep: bool = False,
    mode: Literal["a", "b"] = "a",
    names: list[str] | None = None,
    items: list[Item] | None = None,
) -> str:
    """Say what came
    in.

    Not for the model.
    """
    return repr((path, count, ratio, deep, mode, names, items))


def test_schema_is_exact_and_holds_no_filler() -> None:
    assert sample.spec.description == "Say what came in."
    assert sample.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File"},
            "count": {"type": "integer", "default": 5},
            "ratio": {"type": "number"},
            "deep": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "names": {"type": "array", "items": {"type": "string"}},
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "description": "What to do"},
                        "status": {"type": "string", "enum": ["open", "done"]},
                    },
                    "required": ["text"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_the_declaration_reaches_the_tool() -> None:
    assert (sample.name, sample.toolset, sample.effects) == ("sample", "file", frozenset({"read"}))
    assert sample.parallel and sample.repeatable and sample.timeout_s == 30


@tool(toolset="file", effects={"read"})
async def loose(
    anything: Any,
    things: list,  # type: ignore[type-arg]
    facts: dict[str, int],
    either: Annotated[int | str, "Number or name"],
    share: Annotated[float, msgspec.Meta(ge=0, le=1, description="A part")] = 0.5,
    words: Annotated[list[str], UNSENT] = [],  # noqa: B006 - it is not changed
) -> None:
    """Take what comes."""


def test_every_kind_of_argument_has_its_schema() -> None:
    assert loose.spec.parameters["properties"] == {
        "anything": {},
        "things": {"type": "array"},
        "facts": {"type": "object"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Number or name"},
        "share": {"type": "number", "description": "A part", "minimum": 0, "maximum": 1, "default": 0.5},
        "words": {"type": "array", "items": {"type": "string"}},
    }
    assert loose.spec.parameters["required"] == ["anything", "things", "facts", "either"]
    assert loose.spec.unsent == ("words",) and sample.spec.unsent == ()

    async def odd(what: set[str]) -> None:
        """Do."""

    with pytest.raises(TypeError, match="can't be of type"):
        tool(toolset="file", effects={"read"})(odd)


def test_what_an_argument_must_be_is_said_in_words() -> None:
    with pytest.raises(BadInput) as caught:
        call(loose, anything=1, things={}, facts=[], either=[], share=True, words="x" * 58)
    parts = caught.value.message.split("; ")
    assert [part.partition(":")[0] for part in parts[1:-1]] == [
        "argument 'facts' must be an object",
        "argument 'either' must be as its schema says",
        "argument 'share' must be a number",
    ]
    assert parts[0].startswith(
        "loose: argument 'things' must be a list: got {} (expected 'array', got 'object')"
    )
    assert f"got '{'x' * 58}' (the text is not JSON). Its arguments: anything, things, facts, " in parts[-1]
    with pytest.raises(BadInput, match=rf"got '{'x' * 56}\.\.\. \(the text"):
        call(loose, words="x" * 59)


@pytest.mark.parametrize(
    ("word", "known", "name"),
    [
        ("file", ["path", "file_path"], "file_path"),
        ("the_path", ["file", "path"], "path"),
        ("pth", ["file", "path"], "path"),
        ("ab", ["abc", "xyz"], "abc"),
        ("ab", ["xabyzzz", "xyz"], ""),
        ("xabyzzz", ["ab"], ""),
        ("abc", ["xabcyzzzzzz"], "xabcyzzzzzz"),
        ("xabcyzzzzzz", ["abc"], "abc"),
        ("q", ["path"], ""),
    ],
)
def test_the_name_that_was_meant_is_guessed(word: str, known: list[str], name: str) -> None:
    assert suggest(word, known) == (f", did you mean {name}?" if name else "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": "x"}, ("x", 5, None, False, "a", None, None)),
        ({"path": "x", "count": "7", "deep": "true"}, ("x", 7, None, True, "a", None, None)),
        ({"path": "x", "count": None, "mode": None}, ("x", 5, None, False, "a", None, None)),
        ({"path": 12, "ratio": "0.5"}, ("12", 5, 0.5, False, "a", None, None)),
        ({"path": "x", "names": '["a", "b"]'}, ("x", 5, None, False, "a", ["a", "b"], None)),
        (
            {"path": "x", "items": '[{"text": "t", "status": "done"}]'},
            ("x", 5, None, False, "a", None, [Item("t", "done")]),
        ),
        ({"path": "null"}, ("null", 5, None, False, "a", None, None)),
    ],
)
def test_plain_intent_is_understood(given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert call(sample, **given).text == repr(expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["'path' is missing", "text"]),
        ({"path": "x", "cuont": 1}, ["no argument 'cuont'", "did you mean count?"]),
        ({"path": "x", "count": "many"}, ["'count' must be a whole number", "'many'"]),
        ({"path": "x", "count": 0}, ["'count'", ">= 1"]),
        ({"path": "x", "mode": "z"}, ["'mode' must be one of a, b", "'z'"]),
        ({"path": "x", "names": "a, b"}, ["'names' must be a list, each item text", "not JSON"]),
        ({"path": "x", "items": [{"text": 1}]}, ["'items'", "$[0].text"]),
        ({"path": "x", "count": "\ud800", "\udcff": 1}, ["\\ud800", "no argument '\\udcff'"]),
        ({"count": "x", "nope": 1}, ["'path' is missing", "'nope'", "'count' must be"]),
    ],
)
def test_a_refusal_names_every_fault(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        call(sample, **given)
    for word in [*words, "path, count, ratio"]:
        assert word in caught.value.message
    caught.value.message.encode()


def test_a_synchronous_tool_runs_on_the_pool() -> None:
    pool = ToolPool(1)

    @tool(toolset="file", effects={"read"}, pool=pool)
    def where(ctx: ToolContext, word: str) -> ToolOutput:
        """Name the thread."""
        return ToolOutput(f"{word} {threading.current_thread().name}")

    try:
        assert call(where, word="in").text.startswith("in tool")
    finally:
        pool.close()


@pytest.mark.parametrize("broken", ["no_pool", "no_doc", "no_type", "by_place", "strange name"])
def test_a_function_that_cannot_be_a_tool_is_refused_at_once(broken: str) -> None:
    def no_pool(ctx: ToolContext) -> str:
        """Do."""
        return ""

    async def no_doc(ctx: ToolContext) -> str:
        return ""

    async def by_place(path: str, /) -> str:
        """Do."""
        return path

    async def no_type(ctx: ToolContext, path) -> str:  # type: ignore[no-untyped-def]
        """Do."""
        return str(path)

    functions = {"no_pool": no_pool, "no_doc": no_doc, "by_place": by_place, "no_type": no_type}
    with pytest.raises(TypeError, match=broken):
        if broken in functions:
            tool(toolset="file", effects={"read"})(functions[broken])
        tool(toolset="file", effects={"read"}, name=broken)(no_type)


def test_what_a_function_gives_is_text_or_json_and_it_needs_no_context() -> None:
    @tool(toolset="file", effects={"read"}, name="counts", description="Count.")
    async def count(words: list[str]) -> dict[str, int]:
        return {word: len(word) for word in words}

    assert (count.name, count.spec.description) == ("counts", "Count.")
    assert call(count, words=["one", "three"]).text == '{"one":3,"three":5}'


def test_what_has_no_signature_to_read_is_refused() -> None:
    with pytest.raises(TypeError, match="not written as a function"):
        tool(toolset="file", effects={"read"})(len)


def test_a_closure_keeps_what_it_closes_over() -> None:
    def make(prefix: str) -> Tool:
        @tool(toolset="web", effects={"network"}, output_cap_chars=10, tags={"t"})
        async def echo(ctx: ToolContext, text: str) -> str:
            """Echo."""
            return prefix + text

        return echo

    made = make(">")
    assert call(made, text="a").text == ">a"
    assert made.output_cap_chars == 10 and made.tags == frozenset({"t"})


async def test_a_cancelled_call_tells_its_thread_to_stop() -> None:
    pool = ToolPool(1)
    started, seen = threading.Event(), threading.Event()

    @tool(toolset="file", effects={"read"}, pool=pool)
    def wait(ctx: ToolContext, *, stop: threading.Event) -> str:
        """Wait for the stop."""
        started.set()
        if stop.wait(10):
            seen.set()
        return ""

    task = asyncio.create_task(wait.run(context(), {}))
    await asyncio.get_running_loop().run_in_executor(None, started.wait, 10)
    await cancel_task(task)
    assert seen.wait(10)
    assert wait.spec.parameters["properties"] == {}
    pool.close()
