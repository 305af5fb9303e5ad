"""What clients send, read: messages, calls, results, tools and choices in the three shapes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import each
from whet.contract.brought_text import drop_marks
from whet.contract.messages import ImagePart, ToolCall
from whet.contract.tools import ToolSpec
from whet.serve import chat, content, messages, responses
from whet.serve.chat import ChatMessage, ChatRequest
from whet.serve.client_tools import CallResult, check_tools
from whet.serve.content import Utterance
from whet.serve.forms import AnswerForm
from whet.serve.messages import MessageInput, MessagesRequest
from whet.serve.responses import ResponsesRequest
from whet.serve.wire import ApiError

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
IMAGE = ImagePart("image/png", PNG)
CALL = ToolCall("c1", "look", '{"q":1}')
SPEC = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


def refused(read: Callable[[], object]) -> tuple[str, str, str]:
    """Give what a refusal says: the message, the place and the code."""
    with pytest.raises(ApiError) as caught:
        read()
    assert caught.value.status == 400
    return caught.value.message, caught.value.param, caught.value.code


# Responses.


def in_response(*items: object, **more: Any) -> tuple[Utterance, ...]:
    return responses.read_messages(ResponsesRequest("whet", [*items], **more))  # type: ignore[arg-type]


def test_the_items_of_a_response_are_read_with_calls_joined_to_the_words_before_them() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q":1}'}
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"}
    result = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "4"}],
    }
    picture = {"type": "custom_tool_call_output", "call_id": "c2", "output": [_pictured()]}
    given = in_response(
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": []},
        call,
        custom,
        result,
        picture,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        call,
        instructions="Be brief.",
    )
    second = ToolCall("c2", "patch", '{"input":"x"}')
    assert given == (
        Utterance("system", "Be brief."),
        Utterance("user", "q"),
        Utterance("assistant", "", calls=(CALL, second)),
        Utterance("other", "", results=(CallResult("c1", "4"),)),
        Utterance("other", "", results=(CallResult("c2", "", images=(IMAGE,)),)),
        Utterance("assistant", "a", calls=(CALL,)),
    )
    plain = ResponsesRequest("whet", "q", instructions="", include=["reasoning.encrypted_content"])
    assert responses.read_messages(plain) == (Utterance("user", "q"),)


def _pictured(address: str = f"data:image/png;base64,{PNG}") -> dict[str, object]:
    return {"type": "input_image", "image_url": address}


@pytest.mark.parametrize(
    ("items", "more", "told"),
    [
        ([{"role": 7}], {}, ("a message needs a role", "input[0].role", "")),
        ([{"type": "x" * 50}], {}, (f"items of type {'x' * 40!r} are not taken", "input[0].type", "")),
        (
            [{"role": "user", "content": "x"}, {"type": "function_call_output"}],
            {},
            ("a result needs its call_id", "input[1].call_id", ""),
        ),
        (
            [{"type": "function_call", "call_id": "c", "name": "x"}],
            {},
            ("a call needs an id, a name and arguments as text", "input[0]", ""),
        ),
        (
            [],
            {"include": ["message.output_text.logprobs"]},
            ("logprobs are not given", "include", "unsupported_value"),
        ),
        *(
            ([], {name: value}, (f"{name} is not supported", name, "unsupported_parameter"))
            for name, value in (
                ("background", True),
                ("conversation", "c"),
                ("prompt", {}),
                ("top_logprobs", 2),
            )
            if value
        ),
    ],
)
def test_an_item_of_a_response_that_can_not_be_taken_is_named(
    items: list[object], more: dict[str, Any], told: tuple[str, str, str]
) -> None:
    assert refused(lambda: in_response(*items, **more)) == told


def test_the_form_and_the_tools_of_a_response() -> None:
    form = responses.Format("json_schema", {"type": "object"})
    asked = ResponsesRequest("whet", "q", text=responses.TextOptions(form))
    assert responses.read_form(asked) == AnswerForm({"type": "object"})
    for text in (None, responses.TextOptions(), responses.TextOptions(responses.Format())):
        assert responses.read_form(ResponsesRequest("whet", "q", text=text)) is None
    tools = [{"type": "function", "name": "look", "description": "Looks."}]
    request = ResponsesRequest("whet", "q", tools=tools)
    assert responses.tools_of(request).specs == (SPEC,)
    assert responses.tools_of(ResponsesRequest("whet", "q", tools=tools, tool_choice="none")).specs == ()
    assert responses.tools_of(ResponsesRequest("whet", "q")).specs == ()


# Chat completions.


def in_chat(*chat_messages: ChatMessage, **more: Any) -> tuple[Utterance, ...]:
    return chat.read_messages(ChatRequest("whet", [*chat_messages], **more))


def test_the_messages_of_a_chat_are_read() -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": '{"q":1}'}}
    parts = ["a", {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "c"}, _pictured()]
    named = {"type": "image_url", "image_url": {"url": f"DATA:image/png;a=b;base64,{PNG}"}}
    given = in_chat(
        ChatMessage("developer", "Be brief."),
        ChatMessage("user", [*parts, named]),
        ChatMessage("assistant", None, [call, {**call, "id": "c2"}]),
        ChatMessage("tool", "4", tool_call_id="c1"),
        ChatMessage("function", [_pictured()], tool_call_id="c2"),
        ChatMessage("user", "q", [call]),
        n=1,
        modalities=["text"],
        user="u" * 512,
    )
    assert given == (
        Utterance("system", "Be brief."),
        Utterance("user", "a\nb\nc", (IMAGE, IMAGE)),
        Utterance("assistant", "", calls=(CALL, ToolCall("c2", "look", '{"q":1}'))),
        Utterance("other", "", results=(CallResult("c1", "4"),)),
        Utterance("other", "", results=(CallResult("c2", "", images=(IMAGE,)),)),
        Utterance("user", "q"),
    )
    alone = in_chat(ChatMessage("system", "a"), ChatMessage("system", "b"))
    assert alone == (Utterance("system", "a"), Utterance("user", "b"))


USER = ChatMessage("user", "q")
NAMELESS = "a call needs an id, a name and arguments as text"


def calling(call: dict[str, Any]) -> ChatMessage:
    return ChatMessage("assistant", "", [call])


@each(
    ("said", "more", "told"),
    [
        ([], {}, ("messages is empty", "messages", "")),
        ([USER] * 10_001, {}, ("more than 10,000 messages", "messages", "")),
        ([USER], {"n": 2}, ("one answer is given; n must be 1", "n", "unsupported_value")),
        ([USER], {"modalities": ["audio"]}, ("answers are text", "modalities", "unsupported_value")),
        ([USER], {"user": "u" * 513}, ("user is longer than 512 characters", "user", "")),
        ([USER], {"logprobs": True}, ("logprobs is not supported", "logprobs", "unsupported_parameter")),
        ([USER], {"functions": [1]}, ("functions is not supported", "functions", "unsupported_parameter")),
        (
            [USER, ChatMessage("tool", "4")],
            {},
            ("a result needs the id of its call", "messages[1].tool_call_id", ""),
        ),
        ([calling({})], {}, ("a call needs a function", "messages[0].tool_calls[0].function", "")),
        ([calling({"id": "c", "function": {"name": "x"}})], {}, (NAMELESS, "messages[0].tool_calls[0]", "")),
        (
            [calling({"id": 1, "function": {"name": "x", "arguments": "{}"}})],
            {},
            (NAMELESS, "messages[0].tool_calls[0]", ""),
        ),
        ([ChatMessage("k" * 50)], {}, (f"there is no role {'k' * 40!r}", "messages[0].role", "")),
        (
            [ChatMessage("user", 7)],
            {},
            ("content must be text or a list of parts", "messages[0].content", ""),
        ),
        ([ChatMessage("user", ["a", 7])], {}, ("a part must be an object", "messages[0].content[1]", "")),
        (
            [ChatMessage("user", [{"type": "text"}])],
            {},
            ("text must be a string", "messages[0].content[0].text", ""),
        ),
        (
            [ChatMessage("user", [{"type": "image_url", "image_url": {}}])],
            {},
            ("an image needs a URL", "messages[0].content[0].image_url", ""),
        ),
        (
            [ChatMessage("user", [{"type": "y" * 50}])],
            {},
            (f"parts of type {'y' * 40!r} are not taken", "messages[0].content[0].type", ""),
        ),
    ],
)
def test_a_message_of_a_chat_that_can_not_be_taken_is_named(
    said: list[ChatMessage], more: dict[str, Any], told: tuple[str, str, str]
) -> None:
    assert refused(lambda: in_chat(*said, **more)) == told


def test_the_tools_of_a_chat_and_what_is_wanted_of_their_calls() -> None:
    def tools(*listed: object, **more: Any) -> tuple[ToolSpec, ...]:
        return chat.read_tools(ChatRequest("whet", [], tools=[*listed], **more))

    function = {"name": "look", "description": "Looks."}
    assert tools({"type": "function", "function": function}, tool_choice="auto") == (SPEC,)
    assert tools({"function": {"name": "look"}}) == (ToolSpec("look", "", SPEC.parameters),)
    assert tools({"type": "function", "function": function}, tool_choice="none") == ()
    assert chat.read_tools(ChatRequest("whet", [])) == ()
    for odd in ({"type": "function"}, 7):
        told = ("a tool needs its function", "tools[1]", "unsupported_value")
        assert refused(lambda odd=odd: tools({"function": function}, odd)) == told
    hosted = "tools of type 'web' are run by their vendor; this agent has tools of its own"
    for odd in ({"type": "web"}, {"type": "web", "function": function}):
        told = (hosted, "tools[1]", "unsupported_value")
        assert refused(lambda odd=odd: tools({"function": function}, odd)) == told
    other = ToolSpec("write", "", {"type": "object"})
    assert check_tools([SPEC, other]) == (SPEC, other)
    assert refused(lambda: check_tools([SPEC, SPEC])) == ("two tools have the same name", "tools", "")
    many = [ToolSpec(f"t{number}", "", {}) for number in range(257)]
    assert len(check_tools(many[1:])) == 256
    assert refused(lambda: check_tools(many)) == ("more than 256 tools", "tools", "")

    any_call = "Call at least one of the tools of this program before you answer."
    named = "Call the tool look before you answer; answer with that call."
    for choice, text in (
        (None, ""),
        ("auto", ""),
        ("none", ""),
        ("required", any_call),
        ({"type": "any"}, any_call),
        ({"type": "function", "function": {"name": "look"}}, named),
        ({"type": "tool", "name": "look"}, named),
        (
            {"type": "allowed_tools", "tools": [{"name": "look"}, {"type": "x"}, {"name": "write"}]},
            "Of the tools of this program call no other than look, write.",
        ),
    ):
        assert chat.choice_instruction(choice, [SPEC, other]) == text
    for choice, problem in (
        ("required", "there is nothing in tools to be called"),
        ("sometimes", "tool_choice is none, auto, required or a tool"),
        ({"name": "n" * 90}, f"there is no tool {'n' * 80!r} in tools"),
        ({"type": "allowed_tools", "tools": "x"}, "allowed_tools names no tools"),
    ):
        assert refused(lambda choice=choice: chat.choice_instruction(choice, [])) == (
            problem,
            "tool_choice",
            "",
        )


# Messages.


def test_the_messages_of_anthropics_clients_are_read() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}}
    source = {"type": "base64", "data": PNG}
    result = {"type": "tool_result", "tool_use_id": "c1", "is_error": True}
    shown = {**result, "is_error": "yes", "content": [{"type": "image", "source": source}]}
    document = {"type": "document", "source": {"type": "text", "data": "paper"}}
    request = MessagesRequest(
        "whet",
        [
            MessageInput(
                "user", [document, {"type": "text", "text": "q"}, {"type": "image", "source": source}]
            ),
            MessageInput("assistant", [{"type": "thinking", "thinking": "x"}, use, {**use, "input": None}]),
            MessageInput("user", [{**result, "content": "4"}]),
            MessageInput("user", [shown, result, {"type": "text", "text": "and"}]),
            MessageInput("assistant", []),
        ],
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
    )
    picture = CallResult("c1", "", images=(IMAGE,))
    system, first, *others = messages.read_messages(request)
    assert (system, drop_marks(first.text)) == (Utterance("system", "Be\nbrief."), "<file>paper</file>\nq")
    assert first.images == (IMAGE,)
    assert others == [
        Utterance("assistant", "", calls=(CALL, ToolCall("c1", "look", "{}"))),
        Utterance("other", "", results=(CallResult("c1", "4", is_error=True),)),
        Utterance("other", "", results=(picture, CallResult("c1", "", is_error=True))),
        Utterance("user", "and"),
        Utterance("assistant", ""),
    ]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (7, ("a block must be an object", "messages.0.content.0", "")),
        ({"type": "text"}, ("text must be a string", "messages.0.content.0.text", "")),
        ({"type": "z" * 50}, (f"blocks of type {'z' * 40!r} are not taken", "messages.0.content.0.type", "")),
        ({"type": "tool_use", "id": "c"}, ("a call needs an id and a name", "messages.0.content.0", "")),
        ({"type": "tool_use", "name": "n"}, ("a call needs an id and a name", "messages.0.content.0", "")),
        ({"type": "tool_result"}, ("a result needs its tool_use_id", "messages.0.content.0", "")),
        (
            {"type": "document", "source": {"type": "text"}},
            ("data must be a string", "messages.0.content.0.source.data", ""),
        ),
        (
            {"type": "document", "source": {"type": "url"}},
            ("a document needs text, base64 or an http(s) URL", "messages.0.content.0.source", ""),
        ),
        *(
            (
                {"type": "image", "source": source},
                ("an image needs base64 or an http(s) URL", "messages.0.content.0.source", ""),
            )
            for source in ({"type": "url", "data": PNG}, {"type": "base64"}, 7)
        ),
    ],
)
def test_a_block_that_can_not_be_taken_is_named(block: object, told: tuple[str, str, str]) -> None:
    request = MessagesRequest("whet", [MessageInput("user", [block])])
    assert refused(lambda: messages.read_messages(request)) == told


def test_the_form_the_tools_and_the_choices_of_a_message() -> None:
    empty = MessagesRequest("whet", [])
    assert refused(lambda: messages.read_messages(empty)) == ("messages is empty", "messages", "")
    odd = MessagesRequest("whet", [MessageInput("k" * 50, "x")])
    assert refused(lambda: messages.read_messages(odd)) == (
        f"there is no role {'k' * 40!r}",
        "messages.0.role",
        "",
    )
    wrong = MessagesRequest("whet", [MessageInput("user", 7)])
    told = ("content must be text or a list of blocks", "messages.0.content", "")
    assert refused(lambda: messages.read_messages(wrong)) == told
    tool = {"name": "look", "description": "Looks.", "input_schema": SPEC.parameters}
    for kind in ({}, {"type": "custom"}):
        assert messages.read_tools(MessagesRequest("whet", [], tools=[{**tool, **kind}])) == (SPEC,)
    assert messages.read_tools(MessagesRequest("whet", [], tools=[tool], tool_choice={"type": "none"})) == ()
    searching = MessagesRequest("whet", [], tools=[tool, {"type": "web_search"}])
    assert messages.read_tools(searching) == (SPEC,)
    computing = MessagesRequest("whet", [], tools=[tool, {"type": "computer"}])
    hosted = "tools of type 'computer' are run by their vendor; this agent has tools of its own"
    assert refused(lambda: messages.read_tools(computing)) == (hosted, "tools.1", "unsupported_value")
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for asked in (
        MessagesRequest("whet", [], output_config={"format": form}),
        MessagesRequest("whet", [], output_format=form),
    ):
        assert messages.read_form(asked) == AnswerForm({"type": "object"})
    assert messages.read_form(empty) is None
    assert empty.parallel_tool_calls
    once = MessagesRequest("whet", [], tool_choice={"disable_parallel_tool_use": True})
    assert not once.parallel_tool_calls


# Images, sizes and instructions.


def test_an_image_is_known_by_its_bytes_and_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "IMAGE_LIMIT_BYTES", 28)
    assert content.image_of(PNG, "p") == IMAGE
    too_large = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(21)).decode()
    for data, told in (
        ("not base64", ("the image is not base64", "p", "")),
        (f"{PNG[:8]}*!{PNG[8:]}", ("the image is not base64", "p", "")),
        ("", ("an image has 1 to 28 bytes", "p", "")),
        (too_large, ("an image has 1 to 28 bytes", "p", "")),
        ("QUJD", ("these bytes are not a PNG, JPEG, GIF or WebP", "p", "invalid_image")),
    ):
        assert refused(lambda data=data: content.image_of(data, "p")) == told
    with pytest.raises(ApiError) as caught:
        content.read_utterance("user", [_pictured("http://10.0.0.1/x.png")], "m")
    assert (caught.value.param, caught.value.code) == ("m.content[0].image_url", "unsupported_image")


def test_a_size_is_estimated_of_words_images_calls_results_and_tools() -> None:
    row, image = content.ROW_TOKENS, content.IMAGE_TOKENS
    assert content.estimate_tokens([], []) == 0
    assert content.estimate_tokens([Utterance("user", "", (IMAGE, IMAGE))], []) == row + 2 * image
    words = content.estimate_tokens([Utterance("user", "some words here")], []) - row
    assert words == content.text_tokens("some words here") > 0
    result = Utterance("other", "", results=(CallResult("c", "some words here", images=(IMAGE,)),))
    assert content.estimate_tokens([result], []) == 2 * row + words + image
    calling = Utterance("assistant", "", calls=(ToolCall("c", "some words", " here"),))
    assert content.estimate_tokens([calling], []) == 2 * row + words
    assert content.estimate_tokens([], [SPEC, SPEC]) == 2 * content.estimate_tokens([], [SPEC]) > 0


def test_instructions_are_those_of_the_system_and_a_history_names_its_calls() -> None:
    utterances = [
        Utterance("system", " a "),
        Utterance("user", "x"),
        Utterance("system", " "),
        Utterance("system", "b"),
    ]
    assert content.instructions_of(utterances) == "a\n\nb" and content.digest_of("") == ""
    asked = Utterance("assistant", "", calls=(CALL,))
    result = Utterance("other", "", results=(CallResult("c1", "4"),))
    begun = content.find_new_content([Utterance("user", "q"), asked, result], (), is_begun=False)
    assert begun.history == (Utterance("user", "q"), asked, result) and begun.text == ""
    assert begun.results == (CallResult("c1", "4"),)
    new_content = content.find_new_content([Utterance("user", "q"), asked, result], (), is_begun=True)
    assert (new_content.history, new_content.text, new_content.results) == ((), "", (CallResult("c1", "4"),))
    stray = [Utterance("user", "q"), asked, Utterance("other", "", results=(CallResult("c9", "4"),))]
    told = ("a result belongs to no call of this conversation", "messages", "no_such_call")
    assert refused(lambda: content.find_new_content(stray, ())) == told
    pictured = content.find_new_content([Utterance("user", "", (IMAGE,)), Utterance("user", "look")], ())
    assert (pictured.text, pictured.images) == ("look", (IMAGE,))
    told = ("the last message must be the user's or a tool's result", "messages", "")
    assert refused(lambda: content.find_new_content([Utterance("user", "q"), asked], ())) == told
