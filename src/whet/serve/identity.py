"""Find the session that a request without a session's id continues.

Many people may share a token, a prompt and a model, so similar conversations are common. A session also
contains text that its client never received, such as files that tools have read. So a request must prove that
a session is its client's. The first of these proofs counts:

- results for the calls that the session waits for or ended with: a call's id names its session;
- the client's name for the conversation (a header, or `user`);
- the id of the response that the last answer in the history came with, if it is the session's newest;
- a history that only this session has, if the client says whose it is (a header or a field that names its
  session or person), has sent the id of a call in the newest step with tools, or the session has no calls.

A request without a proof gets a new session, which begins with the history in the request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence, Set

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.contract.tools import ToolSpec
from whet.serve import history
from whet.serve.auth import ApiCaller
from whet.serve.client_tools import CallResult, client_call_id, session_of_call
from whet.serve.content import Utterance, digest_of, instructions_of, without_instructions
from whet.serve.side_requests import is_side_request
from whet.serve.wire import encode
from whet.store import api, sessions

CONVERSATION_HEADER = "x-whet-conversation"
_CHAT_ID = "x-openwebui-chat-id"
_CLIENTS_OWN = re.compile(r"(^|[-_])(session|conversation|chat|thread|user)([-_]?(id|affinity))?$")
_OURS = "x-whet-"
_ITEM_ID = re.compile(r"(?:msg|fc)_([0-9A-Za-z]{16})_\d+")


class SessionChoice(msgspec.Struct, frozen=True):
    """A request's messages, and everything in it that decides which session answers.

    - `session_id`: the session that it names
    - `client_key`: the client's name for the conversation
    - `client`: who the client says it is
    - `is_aside`: it is not a turn of the conversation that it names
    - `once`: instructions for this turn alone
    - `one_by_one`: the program runs the calls of its tools one at a time
    """

    caller: ApiCaller
    messages: tuple[Utterance, ...]
    session_id: str = ""
    client_key: str = ""
    private: bool = False
    tools: tuple[ToolSpec, ...] = ()
    is_aside: bool = False
    once: str = ""
    one_by_one: bool = False
    client: str = ""

    @property
    def results(self) -> tuple[CallResult, ...]:
        """The results after the last answer."""
        call_results: list[CallResult] = []
        for message in reversed(self.messages):
            if message.speaker == "assistant":
                break
            call_results += message.results
        return tuple(call_results)

    @property
    def is_side_request(self) -> bool:
        """Whether a front end asks for itself and not for a person. Such a request gets a private session."""
        return self.is_aside or (
            not self.session_id and is_side_request(self.messages, has_tools=bool(self.tools))
        )

    def tips(self, answer: str = "") -> tuple[str, ...]:
        """Return the fingerprints of the conversation, or () if it has a name or no answer."""
        if self.session_id or self.client_key:
            return ()
        owner = (self.caller.name, str(self.private), self.client)
        words = history.fingerprint(self.messages, answer, "\0".join(owner), has_all=False)
        if self.client or not words:
            return (words,) if words else ()
        tools = sorted(hashlib.sha256(encode(spec)).hexdigest() for spec in self.tools)
        return words, history.fingerprint(self.messages, answer, "\0".join((*owner, *tools)))


def conversation_name(headers: Mapping[str, str], user: str | None) -> str:
    """Return the client's name for its conversation, or an empty string if it gives none."""
    if name := headers.get(CONVERSATION_HEADER, ""):
        return f"name:{name}\n{user}" if user else f"name:{name}"
    if chat_id := headers.get(_CHAT_ID, ""):
        return f"chat:{chat_id}\n{user}" if user else f"chat:{chat_id}"
    return f"user:{user}" if user else ""


def client_name(headers: Mapping[str, str], *fields: object) -> str:
    """Return the fields and headers in which a client names its session or person, or an empty string.

    This is no proof by itself: it counts only together with the same history.
    """
    values = sorted(
        f"{name}={value}"
        for name, value in headers.items()
        if _CLIENTS_OWN.search(name.lower()) and not name.lower().startswith(_OURS) and value
    )
    return "\0".join([*values, *(field for field in fields if isinstance(field, str) and field)])


def response_in(item_id: str) -> str:
    """Return the id, without its prefix, of the response that an output item belongs to, or ""."""
    match = _ITEM_ID.fullmatch(item_id)
    return match[1] if match else ""


def session_of_response(connection: apsw.Connection, utterances: Sequence[Utterance]) -> str:
    """Return the session whose newest response is the last answer, by the id of its item, or ""."""
    answers = [utterance for utterance in utterances if utterance.speaker == "assistant"]
    response = response_in(answers[-1].item_id) if answers else ""
    for prefix in ("resp_", "item_") if response else ():
        stored = api.find_response(connection, prefix + response)
        if stored is not None and stored[1]:
            return stored[0]
    return ""


def session_of_tips(connection: apsw.Connection, choice: SessionChoice) -> str:
    """Return the session that ends like this history, if the client proves that it is its own, or "".

    The same words are enough if the client names itself, or has sent the id of a call in the newest step with
    tools. Otherwise the session must have no calls, and the instructions must be the same, too.
    """
    sent = {call.id for utterance in choice.messages for call in utterance.calls}
    for number, tip in enumerate(choice.tips()):
        session_id, is_newest = api.find_response(connection, tip) or ("", False)
        if not is_newest:
            continue
        calls, _ = api.last_step(connection, session_id)
        is_proven = any(client_call_id(session_id, *call) in sent for call in calls)
        if choice.client or is_proven or (number and not calls):
            return session_id
    return ""


def is_at(connection: apsw.Connection, session_id: str, results: Sequence[CallResult]) -> bool:
    """Return whether a session's newest messages are the calls that the results are for."""
    calls, is_newest = api.last_step(connection, session_id)
    result_ids = {result.call_id for result in results}
    return is_newest and any(client_call_id(session_id, *call) in result_ids for call in calls)


def sessions_of_results(results: Sequence[CallResult]) -> tuple[str, ...]:
    """Return the sessions that the ids of the results' calls name."""
    session_ids = dict.fromkeys(session_of_call(result.call_id) for result in results)
    return tuple(filter(None, session_ids))


def proven_session(connection: apsw.Connection, choice: SessionChoice, waiting_ids: Set[str]) -> str:
    """Return the session that a request proves to be its client's, or "". `waiting_ids` are the ids of calls
    that wait for results."""
    results = choice.results
    for session_id in sessions_of_results(results)[:1]:
        is_waiting = any(result.call_id in waiting_ids for result in results)
        if _may_use(connection, choice.caller, session_id) and (
            is_waiting or is_at(connection, session_id, results)
        ):
            return session_id
    if choice.client_key:
        return api.find_session(connection, choice.caller.name, choice.client_key)
    if results:  # for calls that no session waits for
        return ""
    session_id = session_of_response(connection, choice.messages)
    session_id = session_id or session_of_tips(connection, choice)
    if not session_id or not _may_use(connection, choice.caller, session_id):
        return ""
    return "" if choice.private and not sessions.get(connection, session_id).private else session_id


def is_about_conversation(connection: apsw.Connection, choice: SessionChoice) -> bool:
    """Return whether a request without tools is about the conversation that it names, and not a turn of it.

    Then its first message is not the conversation's, its last one is, and its instructions are different. A
    client that edits, shortens or repeats its history does not do all of this.
    """
    users = [
        without_instructions(message.text)
        for message in choice.messages
        if message.speaker == "user" and not message.results
    ]
    if choice.session_id or choice.results or len(users) < 2:
        return False
    session_id = api.find_session(connection, choice.caller.name, choice.client_key)
    belonging = api.find_owner(connection, session_id) if session_id else None
    if belonging is None or belonging.instructions == digest_of(instructions_of(choice.messages)):
        return False
    stored = {without_instructions(text) for text in api.list_user_texts(connection, session_id)}
    return users[0] not in stored and users[-1] in stored


def visible_session(connection: apsw.Connection, caller: ApiCaller, session_id: str) -> sessions.SessionRow:
    """Return a session that the caller may see. Raises NotFound, also for another caller's session."""
    row = sessions.get(connection, session_id)
    owner = None if caller.is_owner else api.find_owner(connection, session_id)
    if not caller.is_owner and (owner is None or owner.token != caller.name):
        raise NotFound(f"there is no session {session_id}", hint="GET /api/sessions lists them")
    return row


def _may_use(connection: apsw.Connection, caller: ApiCaller, session_id: str) -> bool:
    token = api.find_token_name(connection, session_id)
    return token is not None and (caller.is_owner or token == caller.name)
