"""A server refuses an item of the history: the turn goes on without it, and so does the session."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.refusing_server import ANSWER, THOUGHTS
from tests.agent.rig import Rig, calls, rig
from whet.contract.events import Notice, Retry
from whet.contract.messages import ImagePart, Message, TextPart, VendorReplay
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.providers.backoff import Backoff
from whet.store import compactions
from whet.store.transcript import Transcript
from whet.tools.signature import tool
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

AT_ONCE = Backoff(9, uniform=lambda low, high: 0.0)
WIRES = ["chat_completions", "anthropic_messages", "responses"]
BAD = "R0lGODlhBADBAD"
GOOD = [f"R0lGODlhGOOD{number:02}" for number in range(20)]
PATHS = {
    "chat_completions": "messages[4].content[1].image_url",
    "anthropic_messages": "messages.2.content.0.content.1.image.source.base64.data",
    "responses": "input[2].output[1].image_url",
}
LOCATIONS = {
    "chat_completions": ["body", "messages", 4, "content", 1, "image_url"],
    "anthropic_messages": ["body", "messages", 2, "content", 0],
    "responses": ["body", "input", 2, "output", 1],
}


def picture_tool(*data: str) -> Tool:
    """A tool whose results are these pictures in turn."""
    left = list(data)

    @tool(toolset="x", effects={"read"})
    async def see(ctx: ToolContext) -> ToolOutput:
        """See a picture."""
        return ToolOutput("a picture", images=(ImagePart("image/gif", left.pop(0)),))

    return see


def refusal(body: Any, *, status: int = 400, when: str = BAD, count: int = 12) -> list[ScriptedReply]:
    """Refuse requests that hold a text."""
    text = body if isinstance(body, str) else json.dumps(body)
    return [ScriptedReply(fault=Fault(status=status, body=text), when=when)] * count


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def notices(r: Rig) -> list[str]:
    return [event.text for event in r.events if isinstance(event, Notice)]


def bodies(server: PracticeServer) -> list[str]:
    return [request.body.decode() for request in server.requests]


def whole(r: Rig) -> bool:
    """Whether the transcript's own rows still hold the picture."""
    rows = r.database.read_now(lambda db: db.execute("SELECT content, extra FROM messages").fetchall())
    return any(BAD in str(row) for row in rows)


Refusal = Callable[[str], tuple[int, Any]]
REFUSALS: dict[str, Refusal] = {
    "named in the message": lambda wire: (400, said(f"{PATHS[wire]}: no se puede leer")),
    "named by param": lambda wire: (400, said("Invalid value.", param=PATHS[wire])),
    "named as a location": lambda wire: (422, {"detail": [{"loc": LOCATIONS[wire], "msg": "bad"}]}),
    "named as a tuple": lambda wire: (400, {"message": str([{"loc": tuple(LOCATIONS[wire])}])}),
    "named by the whole message": lambda wire: (400, said(f"{PATHS[wire].split(']')[0]}]: bad")),
    "named wrongly": lambda wire: (400, said("messages.1.content.0.image: Could not process image")),
    "named in another wire's terms": lambda wire: (
        400,
        [{"error": {"code": 400, "message": "* contents[2].parts[1]: bad", "status": "INVALID_ARGUMENT"}}],
    ),
    "nothing named": lambda wire: (400, said("Bad Request")),
    "a bare text": lambda wire: (422, "unprocessable"),
    "too large": lambda wire: (413, "<html>413 Request Entity Too Large</html>"),
    "too long, and no compaction helps": lambda wire: (400, said("no", code="context_length_exceeded")),
    "no endpoint": lambda wire: (404, said("No endpoints found that support image input", code=404)),
    "an unknown model": lambda wire: (404, said("model not found for this input", code="model_not_found")),
    "forbidden": lambda wire: (403, said("no")),
    "failed": lambda wire: (500, said("image input is not supported", type="server_error")),
    "unavailable": lambda wire: (503, "<html>Service Unavailable</html>"),
    "withheld, nothing named": lambda wire: (400, said("flagged", code="content_policy_violation")),
    "withheld": lambda wire: (400, said(f"{PATHS[wire]}: flagged", code="content_policy_violation")),
}


@pytest.mark.fast_rows(
    "named by param", "a bare text-chat", "failed-responses", "forbidden-anthropic", "unknown model-chat"
)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refused_picture_is_left_out_and_work_goes_on(tmp_path: Path, wire: str, kind: str) -> None:
    status, body = REFUSALS[kind](wire)
    script = [*refusal(body, status=status), calls(("see", "{}")), *[ANSWER] * 4]
    with PracticeServer(script=script) as server:
        tools = [picture_tool(BAD)]
        async with rig(tmp_path, server=server, wire=wire, more_tools=tools, backoff=AT_ONCE) as r:
            end = await r.turn("look")
            assert (end.reason, end.text) == ("answered", "All done."), end.error
            assert any("1 picture left out from now on" in line for line in notices(r))
            assert whole(r)
            sent = len(server.requests)
            assert (await r.turn("more")).text == "All done."
            assert len(server.requests) == sent + 1
            session_id = r.session.id
        async with rig(
            tmp_path, server=server, wire=wire, session_id=session_id, more_tools=[picture_tool()]
        ) as r:
            assert (await r.turn("and more")).text == "All done."
        first, second, third = bodies(server)[-3:]
        assert "so it is left out" in first or "too large" in first
        tail = {"chat_completions": "]}", "anthropic_messages": "]}]}", "responses": "]}"}[wire]
        assert second.startswith(first.removesuffix(tail)) and third.startswith(second.removesuffix(tail))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refused_tool_result_is_left_out(tmp_path: Path, wire: str) -> None:
    path = {
        "chat_completions": "messages[3].content",
        "anthropic_messages": "messages.2.content.0",
        "responses": "input[2].output",
    }[wire]
    body = said("string too long", param=path, code="string_above_max_length")
    script = [*refusal(body, when='saw here"'), calls(("look", '{"at": "here"}')), ANSWER, ANSWER]
    async with rig(tmp_path, script, wire=wire) as r:
        assert (await r.turn("go")).text == "All done."
        assert any("1 tool result left out" in line for line in notices(r))
        assert "A result was here" in bodies(r.server)[-1]
        assert (await r.turn("more")).text == "All done."


async def test_a_refused_call_whose_arguments_look_like_a_call_is_sent_as_text(tmp_path: Path) -> None:
    @tool(toolset="x", effects={"read"})
    async def save(ctx: ToolContext, person: dict[str, Any]) -> str:
        """Save a person."""
        return "saved well"

    body = said("messages.1.content.0.input: invalid")
    person = '{"person": {"name": {"first": "Ada"}, "call_id": ["x"]}}'
    script = [*refusal(body, when='"first": "Ada"', count=1), calls(("save", person)), ANSWER]
    async with rig(tmp_path, script, wire="anthropic_messages", more_tools=[save]) as r:
        assert (await r.turn("go")).text == "All done."
        last = bodies(r.server)[-1]
        assert "[Called save with" in last and "saved well" in last


async def test_a_refused_tool_result_whose_call_is_refused_too_is_sent_as_text(tmp_path: Path) -> None:
    paths = "input[2].output", "input[2].call_id"
    refused = [refusal(said("bad", param=path), when='"function_call_output"', count=1)[0] for path in paths]
    script = [*refused, calls(("look", '{"at": "here"}')), ANSWER]
    async with rig(tmp_path, script, wire="responses") as r:
        assert (await r.turn("go")).text == "All done."
        assert '"function_call_output"' not in bodies(r.server)[-1]
        assert "[The result of the call of look:]\\n[A result was here." in bodies(r.server)[-1]


async def test_a_server_that_takes_only_texts_gets_a_text_in_place_of_a_picture(tmp_path: Path) -> None:
    body = said("messages[1]: invalid type: sequence, expected a string at line 1 column 900")
    script = [*refusal(body, status=422, when='"content":['), *[ANSWER] * 2]
    async with rig(tmp_path, script) as r:
        assert (await r.turn((TextPart("what is this"), ImagePart("image/gif", BAD)))).text == "All done."
        assert (await r.turn("more")).text == "All done."
        assert "what is this\\n[" in bodies(r.server)[-1]


async def test_an_outage_that_ends_during_the_search_costs_no_picture(tmp_path: Path) -> None:
    """The request without the picture is taken, and then the whole one is, too."""
    script = [*refusal(said("busy"), status=503, count=2), calls(("see", "{}")), *[ANSWER] * 3]
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)], backoff=AT_ONCE) as r:
        assert (await r.turn("look")).text == "All done."
        assert BAD in bodies(r.server)[-1]
        assert (await r.turn("more")).text == "All done."
        assert BAD in bodies(r.server)[-1]
        assert not any("left out from now on" in line for line in notices(r))


async def test_an_outage_is_waited_out_after_one_request_without_pictures(tmp_path: Path) -> None:
    script = [*refusal(said("busy"), status=503, when="tool_call_id", count=5), calls(("see", "{}")), ANSWER]
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)], backoff=AT_ONCE) as r:
        assert (await r.turn("look")).text == "All done."
        assert BAD in bodies(r.server)[-1]
        assert len(r.server.requests) == 7  # the call, five failures, the answer
        assert sum("so it is left out" in body for body in bodies(r.server)) == 1


async def test_a_picture_that_the_server_took_once_is_sent_through_an_outage(tmp_path: Path) -> None:
    script = [calls(("see", "{}")), ANSWER, *[ScriptedReply(fault=Fault(status=500, body="{}"))] * 4, ANSWER]
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)], backoff=AT_ONCE) as r:
        assert (await r.turn("look")).text == "All done."
        assert (await r.turn("more")).text == "All done."
        assert len(r.server.requests) == 7
        assert all(BAD in body for body in bodies(r.server)[1:])


async def test_an_outage_that_outlasts_the_retries_ends_the_turn_with_its_error(tmp_path: Path) -> None:
    script = [calls(("see", "{}")), *[ScriptedReply(fault=Fault(status=500, body="{}"))] * 20]
    backoff = Backoff(0)
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)], backoff=backoff) as r:
        end = await r.turn("look")
        assert (end.reason, "HTTP 500" in end.error) == ("failed", True)
        assert len(r.server.requests) == 3  # the call, the whole list, the list without the picture
        assert not any("left out from now on" in line for line in notices(r))


@pytest.mark.fast_rows("400-body0", "500-body1-resp", "400-body2-anth")
@pytest.mark.parametrize("wire", WIRES[1:])
@pytest.mark.parametrize(
    "body",
    [
        said("messages.1.content.0: Invalid `signature` in `thinking` block"),
        said("Could not verify.", param="input[1].encrypted_content", code="invalid_encrypted_content"),
        said("Encrypted content could not be decrypted or parsed."),
        {"detail": "refused"},
    ],
)
@pytest.mark.parametrize("status", [400, 500])
async def test_refused_thoughts_are_left_out(tmp_path: Path, wire: str, status: int, body: Any) -> None:
    script = [*refusal(body, status=status, when='"SIG"'), ANSWER, ANSWER, ANSWER]
    async with rig(tmp_path, script, wire=wire, backoff=AT_ONCE) as r:
        turn = await r.session.log.begin_turn(Message("user", "go"))
        replay = VendorReplay(wire, THOUGHTS[wire])  # type: ignore[arg-type]
        answer = Message("assistant", "Said.", reasoning="hm", replay=replay)
        await r.session.log.append_reply(turn, answer, r.session.usage, "practice")
        await r.session.log.end_turn(turn, "answered", "")
        assert (await r.turn("more")).text == "All done."
        assert any("the reasoning kept with 1 answer left out" in line for line in notices(r))
        sent = len(r.server.requests)
        assert (await r.turn("more")).text == "All done."
        assert len(r.server.requests) == sent + 1
        assert "Said." in bodies(r.server)[-1]


def see_all(count: int) -> list[ScriptedReply]:
    return [calls(("see", "{}")) for _ in range(count)]


@pytest.mark.parametrize("where", [0, 2, 4])
async def test_a_search_keeps_the_pictures_that_are_not_at_fault(tmp_path: Path, where: int) -> None:
    """Each picture comes with a result of its own: the ones before were answered once."""
    data = [*GOOD[:where], BAD, *GOOD[where:4]]
    script = [*refusal(said("Bad Request")), *see_all(5), ANSWER]
    async with rig(tmp_path, script, more_tools=[picture_tool(*data)]) as r:
        assert (await r.turn("look")).reason == "answered"
        last = bodies(r.server)[-1]
        assert BAD not in last and all(good in last for good in data if good != BAD)


async def test_several_new_pictures_are_tried_one_by_one(tmp_path: Path) -> None:
    script = [*refusal(said("Bad Request")), ANSWER]
    async with rig(tmp_path, script) as r:
        images = [ImagePart("image/gif", data) for data in (GOOD[0], BAD, GOOD[1])]
        r.session.inbox.put(r.session.user_message("see", images))
        assert (await r.turn("look")).reason == "answered"
        last = bodies(r.server)[-1]
        assert GOOD[0] in last and GOOD[1] in last and BAD not in last
        (search,) = [line for line in notices(r) if "at most 6 requests" in line]
        assert "does not say for which part" in search


async def test_of_too_many_pictures_the_oldest_go(tmp_path: Path) -> None:
    """The limit is five: the sixth is refused, and is not the one that is left out."""
    script = [*see_all(5), *refusal(said("Too many images: 6 > 5"), when=f'{GOOD[0]}"', count=1), ANSWER]
    script.insert(5, calls(("see", "{}")))
    async with rig(tmp_path, script, more_tools=[picture_tool(*GOOD[:6])]) as r:
        assert (await r.turn("look")).reason == "answered"
        last = bodies(r.server)[-1]
        assert GOOD[5] in last and GOOD[2] in last and GOOD[0] not in last


async def test_a_refusal_about_something_else_ends_the_turn_and_leaves_nothing_out(tmp_path: Path) -> None:
    script = [calls(("see", "{}")), *refusal(said("temperature must be 1"), when=GOOD[0], count=1)]
    script += refusal(said("temperature must be 1"), when="look", count=9)
    async with rig(tmp_path, script, more_tools=[picture_tool(GOOD[0])]) as r:
        end = await r.turn("look")
        assert (end.reason, "temperature" in end.error) == ("failed", True)
        assert len(r.server.requests) <= 1 + 1 + 6
        log = await Transcript.open(r.database, r.session.id, r.session.clock)
        assert any(not isinstance(message.content, str) for message in log.messages)
        assert not any("left out from now on" in line for line in notices(r))


@pytest.mark.parametrize("wire", WIRES)
async def test_many_pictures_that_are_named_one_after_the_other_end_soon(tmp_path: Path, wire: str) -> None:
    """Each refusal names one picture: after three of them all go."""
    path = {
        "chat_completions": "messages[1].content[{}]",
        "anthropic_messages": "messages.0.content.{}.image",
        "responses": "input[0].content[{}]",
    }[wire]
    script = [
        ScriptedReply(
            fault=Fault(status=400, body=json.dumps(said(f"{path.format(at + 1)}: too wide"))), when=data
        )
        for at, data in enumerate(GOOD)
    ]
    async with rig(tmp_path, [*script, ANSWER], wire=wire) as r:
        images = [ImagePart("image/gif", data) for data in GOOD]
        turn = await r.session.log.begin_turn(r.session.user_message("see", images))
        assert turn.number == 1
        assert (await r.turn(None)).reason == "answered"
        assert len(r.server.requests) <= 6


@pytest.mark.fast_rows("declaration-chat", "name-responses", "param-anthropic", "position-chat")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["position", "param", "name", "declaration"])
async def test_a_refused_tool_is_left_out(tmp_path: Path, wire: str, kind: str) -> None:
    @tool(toolset="x", effects={"read"})
    async def odd_tool(ctx: ToolContext) -> str:
        """Be odd."""
        return ""

    async with rig(tmp_path, [ANSWER], wire=wire, more_tools=[odd_tool]) as r:
        index = list(r.session.tools).index("odd_tool")
        body = {
            "position": said(f"tools.{index}.custom.input_schema: JSON schema is invalid"),
            "param": said("Invalid schema.", param=f"tools[{index}].function.parameters"),
            "name": said("Invalid schema for function 'odd_tool': array schema missing items"),
            "declaration": said(f"tools[0].function_declarations[{index}].parameters: should be non-empty"),
        }[kind]
        r.server.install([*refusal(body, when='"name":"odd_tool"'), ANSWER, ANSWER])
        assert (await r.turn("go")).text == "All done."
        assert any(
            "refused the tool odd_tool" in event.reason for event in r.events if isinstance(event, Retry)
        )
        sent = len(r.server.requests)
        assert (await r.turn("more")).text == "All done."
        assert len(r.server.requests) == sent + 1
        assert '"look"' in bodies(r.server)[-1]


async def test_a_repair_is_counted_apart_from_compactions(tmp_path: Path) -> None:
    script = [*refusal(said("Bad Request")), calls(("see", "{}")), ANSWER]
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)]) as r:
        await r.turn("look")
        sums = await r.database.read(lambda db: compactions.sum_compactions(db, r.session.id))
        assert (sums.count, sums.repairs) == (0, 1)
        assert await compactions.last_counts(r.session.log) == []


async def test_an_undone_turn_takes_its_repair_with_it(tmp_path: Path) -> None:
    script: Sequence[ScriptedReply] = [
        ANSWER,
        *refusal(said("Bad Request")),
        calls(("see", "{}")),
        ANSWER,
        ANSWER,
    ]
    async with rig(tmp_path, script, more_tools=[picture_tool(BAD)]) as r:
        await r.turn("first")
        await r.turn("look")
        await r.session.log.undo_last_turn()
        assert [message.text for message in r.session.log.messages] == ["first", "All done."]
        assert (await r.turn("more")).text == "All done."
