"""Which session a request continues: one that its client proves to be its own."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.serve.conftest import Api
from tests.serve.lookalikes import Person, converse
from tests.serve.test_openai import row_of, sent, texts
from whet.serve.content import Utterance
from whet.serve.side_requests import is_side_request
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

PAIRS = 45
READ = ScriptedReply("", tool_calls=(PracticeCall("read_file", '{"path":"note.txt"}', "s1"),))
DONE = ScriptedReply("Done.")
PROTOCOLS = pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@pytest.mark.slow
def test_look_alike_conversations_are_never_mixed(api: Api, http: httpx2.Client) -> None:
    assert [mixed for seed in range(PAIRS) for mixed in converse(api, http, seed)] == []


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 11_000, 200))
def test_10000_look_alike_pairs_are_never_mixed(api: Api, http: httpx2.Client, first: int) -> None:
    mixed = [line for seed in range(first, first + 200) for line in converse(api, http, seed)]
    print(f"pairs {first} to {first + 199}: {len(mixed)} mixed")
    assert mixed == []


def _ask(api: Api, http: httpx2.Client, person: Person, text: str, *replies: ScriptedReply) -> str:
    api.say(*replies)
    body = person.body(text, has_tool=False)
    answer = http.post(PATHS[person.protocol], json=body, headers=person.headers)
    assert answer.status_code == 200, answer.text
    person.read(answer.json())
    return answer.headers["x-whet-session"]


def _person(protocol: Any, session: str = "", *, keeps_ids: bool = False) -> Person:
    headers = {"x-session-id": session} if session else {}
    return Person("ann", protocol, keeps_ids=keeps_ids, headers=headers)


@pytest.mark.fast_rows("chat")
@PROTOCOLS
def test_a_conversation_with_hidden_results_begins_anew_unless_its_client_says_whose_it_is(
    api: Api, http: httpx2.Client, protocol: str
) -> None:
    (api.workspace / "note.txt").write_text("the code is 4711")
    silent = _person(protocol)
    first = _ask(api, http, silent, f"read it, {protocol}", READ, DONE)
    assert _ask(api, http, silent, "and now?", DONE) != first
    assert [role for role, _ in texts(api)] == ["user", "assistant", "user"] and "4711" not in str(sent(api))
    named = _person(protocol, "s-1")
    first = _ask(api, http, named, f"read it, {protocol}", READ, DONE)
    assert _ask(api, http, named, "and now?", DONE) == first and "4711" in str(sent(api))
    other = _person(protocol, "s-2")
    other.said = named.said[:2]
    assert _ask(api, http, other, "and now?", DONE) != first and "4711" not in str(sent(api))


def test_items_of_the_newest_response_prove_whose_conversation_it_is(api: Api, http: httpx2.Client) -> None:
    (api.workspace / "note.txt").write_text("the code is 4711")
    person = _person("responses", keeps_ids=True)
    first = _ask(api, http, person, "read it", READ, DONE)
    copy = _person("responses", keeps_ids=True)
    copy.copy_from(person)
    assert _ask(api, http, person, "more", DONE) == first and "4711" in str(sent(api))
    # The conversation has gone on: what was said since is nobody else's.
    assert _ask(api, http, copy, "more", DONE) != first and "4711" not in str(sent(api))
    stranger = api.new_token("another-program")
    with api.http(stranger) as theirs:
        assert _ask(api, theirs, person, "more", DONE) != first and "4711" not in str(sent(api))


def test_what_two_conversations_share_finds_neither(api: Api, http: httpx2.Client) -> None:
    ann, bob = _person("chat"), _person("chat")
    first, second = (_ask(api, http, person, "the same words", DONE) for person in (ann, bob))
    third, fourth = (_ask(api, http, person, "and more", DONE) for person in (ann, bob))
    assert len({first, second, third, fourth}) == 4
    alone = _person("chat")
    first = _ask(api, http, alone, "words of my own", DONE)
    assert _ask(api, http, alone, "and more", DONE) == first and row_of(api, first).turns == 2


def test_instructions_of_another_program_are_not_continued(api: Api, http: httpx2.Client) -> None:
    mine: list[dict[str, str]] = [{"role": "system", "content": "The word is heron."}]
    body: dict[str, Any] = {"model": "whet", "messages": [*mine, {"role": "user", "content": "instructed"}]}
    api.say(DONE, DONE)
    first = http.post(PATHS["chat"], json=body).headers["x-whet-session"]
    messages = [
        *body["messages"][1:],
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "on"},
    ]
    second = http.post(PATHS["chat"], json={"model": "whet", "messages": messages}).headers["x-whet-session"]
    assert second != first and "heron" not in str(sent(api))


def test_a_calls_id_proves_a_conversation_whose_instructions_changed(api: Api, http: httpx2.Client) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    said: list[Any] = [
        {"role": "system", "content": "It is 10:01."},
        {"role": "user", "content": "look around"},
    ]

    def ask(*replies: ScriptedReply) -> str:
        api.say(*replies)
        answer = http.post(PATHS["chat"], json={"model": "whet", "messages": said, "tools": [tool]})
        message = answer.json()["choices"][0]["message"]
        said.append({name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)})
        return answer.headers["x-whet-session"]

    first = ask(ScriptedReply("", tool_calls=(PracticeCall("look", "{}", "c1"),)))
    said.append({"role": "tool", "tool_call_id": said[-1]["tool_calls"][0]["id"], "content": "trees"})
    assert ask(DONE) == first
    said[0] = {"role": "system", "content": "It is 10:02."}
    said.append({"role": "user", "content": "and now?"})
    assert ask(READ, DONE) == first
    said.append({"role": "user", "content": "and then?"})
    assert ask(DONE) != first, "what was read after the call is not the client's to have"


def test_a_session_that_went_on_elsewhere_is_not_continued(api: Api, http: httpx2.Client) -> None:
    person = _person("chat")
    first = _ask(api, http, person, "here and there", DONE)
    elsewhere = {"model": "whet", "messages": [{"role": "user", "content": "said elsewhere"}]}
    http.post(PATHS["chat"], json=elsewhere, headers={"x-whet-session": first})
    assert _ask(api, http, person, "back here", DONE) != first
    assert "said elsewhere" not in str(sent(api))


def test_a_conversations_name_is_a_header_or_a_user_with_it(api: Api, http: httpx2.Client) -> None:
    body = {"model": "whet", "messages": [{"role": "user", "content": "named"}]}

    def session(user: str = "", **headers: str) -> str:
        api.say(DONE)
        more = {"user": user} if user else {}
        return http.post(PATHS["chat"], json={**body, **more}, headers=headers).headers["x-whet-session"]

    first = session("ann", **{"x-whet-conversation": "c1"})
    assert session("ann", **{"x-whet-conversation": "c1"}) == first
    others = [
        session("bob", **{"x-whet-conversation": "c1"}),
        session("ann", **{"x-whet-conversation": "c2"}),
        session("", **{"x-whet-conversation": "c1"}),
        session("ann"),
    ]
    assert len({first, *others}) == 5


ASKS = [
    "Generate a concise 3-7 word title for this conversation. Go straight to the title.",
    "Provide a concise, 5-word-or-less title for the conversation. Only return the title itself.\n\nUser: x",
    "Based on the chat history, give this conversation a name. Keep it short - 10 characters max, no quotes.",
    "Suggest 3 follow-up questions for this chat. Answer with JSON.",
    "### Task:\nGenerate tags\n<chat_history>",
]
WORDS = [
    "What is a good title for my book? Only one, please.",
    "How do I name a conversation in Slack?",
    "Give me a short summary of the second chapter.",
    "Write a function that returns only the keywords of a text.",
]


@pytest.mark.parametrize(
    ("text", "is_aside"), [*((ask, True) for ask in ASKS), *((word, False) for word in WORDS)]
)
def test_a_side_request_is_recognised_by_its_shape(text: str, is_aside: bool) -> None:
    utterances = [Utterance("system", "You help."), Utterance("user", text)]
    assert is_side_request(utterances, has_tools=False) is is_aside
    assert is_side_request(utterances, has_tools=True) is False
    assert is_side_request([*utterances, Utterance("assistant", "x")], has_tools=False) is False


def test_instructions_above_a_single_message_may_ask_for_a_title() -> None:
    system = Utterance("system", "Generate a title for the coding session. Nothing else, at most 7 words.")
    asked = [system, Utterance("user", "fix the tests")]
    assert is_side_request(asked, has_tools=False)
    assert not is_side_request([*asked, Utterance("assistant", "x"), asked[1]], has_tools=False)


def test_messages_that_nothing_has_answered_are_one_request() -> None:
    asks = [
        Utterance("user", "Suggest a title for this conversation, at most 5 words:"),
        Utterance("user", "x"),
    ]
    assert is_side_request(asks, has_tools=False)
    answered = [asks[0], Utterance("assistant", "y"), asks[1]]
    assert not is_side_request(answered, has_tools=False)


TITLERS = [
    (
        "You are a title generator. You output ONLY a thread title.",
        "Generate a title for this conversation:\n",
    ),
    ("Du schreibst Überschriften. Nur die Überschrift.", "Eine Überschrift für das Folgende:"),
]


@pytest.mark.fast_rows("header-You", "user-Du")
@pytest.mark.parametrize(("instructions", "ask"), TITLERS)
@pytest.mark.parametrize("by", ["user", "header"])
def test_a_title_request_under_the_conversations_name_is_no_turn_of_it(
    api: Api, http: httpx2.Client, by: str, instructions: str, ask: str
) -> None:
    question = "How do I prune a pear tree?"
    name = f"pears-{by}-{TITLERS.index((instructions, ask))}"  # the cases share one API

    def session(system: str, *said: str) -> str:
        api.say(DONE)
        roles = ("user", "assistant") if system == "You help." else ("user", "user")
        messages = [{"role": "system", "content": system}]
        messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
        body = {"model": "whet", "messages": messages, **({"user": name} if by == "user" else {})}
        headers = {} if by == "user" else {"x-whet-conversation": name}
        return http.post(PATHS["chat"], json=body, headers=headers).headers["x-whet-session"]

    first = session("You help.", question)
    aside = session(instructions, ask, question)
    assert session("You help.", question, "Done.", "And apples?") == first != aside
    assert session(instructions, ask, question) not in (first, aside)
    assert session("You help.", question, "Done.", "And apples?", "Done.", "And figs?") == first
    assert ask.strip() not in str(sent(api)) and row_of(api, aside).private


@pytest.mark.parametrize(
    "said",
    [("Something new",), ("Edited", "And apples?"), ("How do I prune?", "Again"), ("And apples?", "figs?")],
)
def test_other_instructions_and_a_changed_history_are_still_the_conversation(
    api: Api, http: httpx2.Client, said: tuple[str, ...]
) -> None:
    headers = {
        "x-whet-conversation": "changed-" + "-".join(said).replace(" ", "-").replace("?", "")
    }  # the cases share one API

    def session(system: str, *texts: str) -> str:
        api.say(DONE)
        messages = [
            {"role": "system", "content": system},
            *({"role": "user", "content": text} for text in texts),
        ]
        body = {"model": "whet", "messages": messages}
        return http.post(PATHS["chat"], json=body, headers=headers).headers["x-whet-session"]

    first = session("It is Monday.", "How do I prune?")
    assert session("It is Tuesday.", *said) == first


def test_a_title_request_leaves_the_conversation_as_it_is(api: Api, http: httpx2.Client) -> None:
    person = _person("chat")
    first = _ask(api, http, person, "How do I prune a pear tree?", DONE)
    body = {"model": "whet", "messages": [*person.said, {"role": "user", "content": ASKS[0]}]}
    api.say(ScriptedReply("Pear trees"))
    aside = http.post(PATHS["chat"], json=body).headers["x-whet-session"]
    assert _ask(api, http, person, "And an apple tree?", DONE) == first != aside
    assert "title" not in str(sent(api)) and row_of(api, aside).private


@PROTOCOLS
def test_a_list_that_ends_with_an_answer_is_continued(api: Api, http: httpx2.Client, protocol: str) -> None:
    person = _person(protocol)
    first = _ask(api, http, person, f"tell a story, {protocol}", DONE)
    field = "input" if protocol == "responses" else "messages"
    api.say(ScriptedReply("The end."))
    more = {"max_tokens": 9} if protocol == "messages" else {}
    answer = http.post(PATHS[protocol], json={"model": "whet", field: person.said, **more})
    assert answer.status_code == 200 and answer.headers["x-whet-session"] == first
    assert "Continue your last answer" in str(sent(api)[-1]["content"])
