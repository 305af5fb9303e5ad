"""What a server asks a person while a call runs: by the official SDK's server, and by one that asks oddly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field

from tests.mcp.rig import bench, odd
from tests.mcp.serving import sdk_over_http
from whet.config.permission_settings import McpServerSettings
from whet.contract.brought_text import wrap_in_tag
from whet.mcp.elicitation import DECLINE, EMPTY, elicit
from whet.mcp.remote import suspend_limit_while_asking
from whet.mcp.server_requests import CallPerson, ServerRequests


class Trip(BaseModel):
    """What a booking needs."""

    place: str = Field(description="Where to")
    nights: int = Field(default=2, ge=1, le=9)
    seat: Literal["aisle", "window"] = "window"
    breakfast: bool = True


def make_booking(**extra: Any) -> MCPServer:
    """Give a server whose tool asks before it does anything."""
    server = MCPServer("booking", version="1", **extra)

    @server.tool()
    async def book(ctx: Context) -> str:
        """Book a trip."""
        fields = await ctx.elicit("Which trip shall be booked?", Trip)
        return f"{fields.action}: {fields.data.model_dump_json() if fields.action == 'accept' else ''}"

    return server


@pytest.mark.fast_rows("answers0", "answers3")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["Rome", "3", "aisle", "no"], {"place": "Rome", "nights": 3, "seat": "aisle", "breakfast": False}),
        (["Rome", "30", "4", "window", "yes"], {"place": "Rome", "nights": 4, "seat": "window"}),
        ([f" {wrap_in_tag('pasted', 'Rome')} ", "2", "aisle", "no"], {"place": "Rome", "nights": 2}),
        (["Rome", "2", "window", ""], {"nights": 2, "breakfast": True}),
        (["Rome", DECLINE], "decline: "),
        (["Rome", None], "cancel: "),
        ([], "cancel: "),
    ],
)
async def test_the_sdks_form_is_put_to_the_person(
    home: Path, answers: list[str | None], told: dict[str, object] | str
) -> None:
    with sdk_over_http(make_booking) as url:
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            b.answers = list(answers)
            text = (await b.call("mcp__web__book")).text.rpartition("\n")[2]
            if isinstance(told, str):
                assert text == told
            else:
                assert told.items() <= json.loads(text.removeprefix("accept: ")).items()
            assert b.asked[0][0].startswith("The MCP server web asks: Which trip shall be booked? (1 of 4)")
            assert DECLINE in b.asked[0][1]


async def test_no_time_of_a_call_passes_while_its_person_is_asked() -> None:
    async with asyncio.timeout(60) as limit:

        async def answer(_question: str, _choices: object) -> str:
            assert limit.when() is None
            return "yes"

        person = suspend_limit_while_asking(CallPerson("s", answer), limit, 30)
        assert person and person.owner == "s" and suspend_limit_while_asking(None, limit, 30) is None
        assert await person.ask("?", ()) == "yes"
        left_s = (limit.when() or 0) - asyncio.get_running_loop().time()
        assert 0 < left_s <= 30


async def test_the_newer_protocols_question_is_answered_with_the_call_again(home: Path) -> None:
    async with bench(home, {"odd": odd("modern")}) as b:
        b.answers = ["Agree"]
        out = await b.call("mcp__odd__echo", text="ask me")
        assert json.loads(out.text.rpartition("\n")[2]) == [{"a": {"action": "accept", "content": {}}}, "s1"]
        b.answers = [DECLINE]
        assert '"decline"' in (await b.call("mcp__odd__echo", text="ask me")).text


async def test_calls_of_two_conversations_at_once_are_asked_nothing(home: Path) -> None:
    async def nobody(_message: bytes) -> None: ...

    async def answer(_question: str, _choices: object) -> str:
        return "Agree"

    asked = ServerRequests("x", nobody, lambda _method: None)
    person, other = CallPerson("s1", answer), CallPerson("s2", answer)
    with asked.during(person):
        assert (await asked.ask_person({"message": "?"}))["action"] == "accept"
        with asked.during(other):
            assert (await asked.ask_person({"message": "?"}))["action"] == "cancel"
        for _ in range(10):
            last = await asked.ask_person({"message": "?"})
        assert last["action"] == "cancel", "a call asks a few times, not for ever"
    assert (await asked.ask_person({"message": "?"}))["action"] == "cancel"


@pytest.mark.parametrize(
    ("field", "said", "value", "choices"),
    [
        ({"type": "string", "default": "John"}, "John", "John", ["John"]),
        ({"type": "string", "default": "John"}, "", "John", ["John"]),
        ({"type": "integer", "default": 30}, "30", 30, ["30"]),
        ({"type": "number", "default": 95.5}, "95.5", 95.5, ["95.5"]),
        ({"type": "number"}, "1,5", 1.5, [EMPTY]),
        ({"type": "boolean", "default": True}, "yes", True, ["yes", "no"]),
        ({"type": "string"}, EMPTY, None, [EMPTY]),
        (
            {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]},
            *("second", "b", ["First", "Second", EMPTY]),
        ),
        ({"type": "string", "oneOf": [{"const": "x", "title": "The x"}]}, "The x", "x", ["The x", EMPTY]),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "a, C", ["a", "c"], [EMPTY]),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X!"}]}}, "X!", ["x"], [EMPTY]),
    ],
)
def test_answers_come_as_the_form_wants_them(
    field: dict[str, Any], said: str, value: object, choices: list[str]
) -> None:
    offered: list[Sequence[str]] = []

    async def answer(_question: str, choices: Sequence[str]) -> str:
        offered.append(choices)
        return said

    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {"f": field}}}
    content = {} if value is None else {"f": value}
    assert asyncio.run(elicit("x", form, answer)) == {"action": "accept", "content": content}
    assert offered == [[*choices, DECLINE]]


@pytest.mark.parametrize(
    ("field", "said", "reason"),
    [
        ({"type": "integer"}, "many", "it is not a whole number"),
        ({"type": "number"}, "many", "it is not a number"),
        ({"type": "number"}, "nan", "it is not a number"),
        ({"type": "string", "enum": ["a"]}, "b", "it is one of a"),
        ({"type": "string", "minLength": 3}, "ab", "it has at least 3 characters"),
        ({"type": "boolean"}, "perhaps", "it is yes or no"),
    ],
)
def test_an_answer_that_does_not_fit_is_asked_again(field: dict[str, Any], said: str, reason: str) -> None:
    shown: list[str] = []

    async def answer(question: str, _choices: object) -> str:
        shown.append(question)
        return said

    schema = {"type": "object", "properties": {"f": field}, "required": ["f"]}
    assert asyncio.run(elicit("x", {"message": "m", "requestedSchema": schema}, answer)) == {
        "action": "cancel"
    }
    assert len(shown) == 3 and f"That does not fit: {reason}." in shown[-1]


@pytest.mark.parametrize(
    "name", ["geheimzahl", "Kennwort", "otp", "pin", "x1", "seed_phrase", "mot de passe"]
)
def test_each_text_field_warns_that_the_server_reads_the_answer(name: str) -> None:
    shown: list[str] = []

    async def answer(question: str, _choices: object) -> None:
        shown.append(question)

    def ask(field: dict[str, object]) -> str:
        form = {"message": "Please", "requestedSchema": {"properties": {name: field}}}
        asyncio.run(elicit("x", form, answer))
        return shown[-1]

    assert "give servers no password or key" in ask({"type": "string"})
    assert "give servers no password or key" not in ask({"type": "string", "enum": ["a", "b"]})
    assert "give servers no password or key" not in ask({"type": "boolean"})


def test_a_strangers_words_are_shown_as_such() -> None:
    shown: list[str] = []

    async def answer(question: str, _choices: object) -> None:
        shown.append(question)

    field = {"type": "string", "title": "Pass\u202eword\nWhet asks: approve?"}
    form = {"message": "Hi\u200b\nthere", "requestedSchema": {"properties": {"api_key": field}}}
    asyncio.run(elicit("x", form, answer))
    assert shown[0].splitlines()[0] == "The MCP server x asks: Hi there"
    assert "\u202e" not in shown[0] and "give servers no password or key" in shown[0]
