"""Two people behind one token whose conversations look alike, in an order drawn by a seed."""

from __future__ import annotations

import json
import random
from typing import Any, Literal

import httpx2

from tests.serve.conftest import Api
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

Protocol = Literal["chat", "responses", "messages"]
PROTOCOLS: tuple[Protocol, ...] = ("chat", "responses", "messages")
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


class Person:
    """One person's conversation as the client has it; `allowed` are the secrets that it may lead to."""

    def __init__(self, name: str, protocol: Protocol, *, keeps_ids: bool, headers: dict[str, str]) -> None:
        self.name = name
        self.protocol: Protocol = protocol
        self.keeps_ids = keeps_ids
        self.headers = headers
        self.said: list[Any] = []
        self.allowed: set[str] = set()
        self.is_waiting = False
        self.sessions: list[str] = []

    def copy_from(self, other: Person) -> None:
        """Take over the other person's conversation, as a front end does with one that is shared."""
        self.said, self.is_waiting = json.loads(json.dumps(other.said)), other.is_waiting
        self.allowed |= other.allowed

    def body(self, text: str, *, has_tool: bool) -> dict[str, Any]:
        """Return the next request: the results of the calls that wait, else `text`."""
        if self.is_waiting:
            self._add_results()
        else:
            self.said.append({"role": "user", "content": text})
        if self.protocol == "responses":
            tool: Any = {"type": "function", "name": "look", "parameters": _SCHEMA}
            body: dict[str, Any] = {"model": "whet", "input": self.said}
        elif self.protocol == "messages":
            tool = {"name": "look", "input_schema": _SCHEMA}
            body = {"model": "whet", "max_tokens": 99, "messages": self.said}
        else:
            tool = {"type": "function", "function": {"name": "look", "parameters": _SCHEMA}}
            body = {"model": "whet", "messages": self.said}
        return {**body, "tools": [tool]} if has_tool else body

    def _add_results(self) -> None:
        self.is_waiting = False
        last = self.said[-1]
        if self.protocol == "responses":
            self.said.append({"type": "function_call_output", "call_id": last["call_id"], "output": "seen"})
        elif self.protocol == "messages":
            ids = [block["id"] for block in last["content"] if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": one, "content": "seen"} for one in ids]
            self.said.append({"role": "user", "content": results})
        else:
            for call in last["tool_calls"]:
                self.said.append({"role": "tool", "tool_call_id": call["id"], "content": "seen"})

    def read(self, answer: dict[str, Any]) -> None:
        """Add an answer to the conversation as clients do, with or without the ids of items."""
        if self.protocol == "responses":
            for item in answer["output"]:
                self.said.append(
                    item if self.keeps_ids else {name: item[name] for name in item if name != "id"}
                )
            self.is_waiting = answer["output"][-1]["type"] == "function_call"
        elif self.protocol == "messages":
            self.said.append({"role": "assistant", "content": answer["content"]})
            self.is_waiting = answer["stop_reason"] == "tool_use"
        else:
            message = answer["choices"][0]["message"]
            self.said.append(
                {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)}
            )
            self.is_waiting = bool(message.get("tool_calls"))


def converse(api: Api, http: httpx2.Client, seed: int) -> list[str]:
    """Let two people converse in an order drawn by `seed`; return each secret that reached the wrong one."""
    chance = random.Random(seed)
    protocol = PROTOCOLS[seed % len(PROTOCOLS)]
    keeps_ids, has_tool, says_who = (chance.random() < 0.5 for _ in range(3))
    people = [
        Person(name, protocol, keeps_ids=keeps_ids, headers={"x-session-id": name} if says_who else {})
        for name in (f"{seed}-a", f"{seed}-b")
    ]
    mixed: list[str] = []
    for step in range(chance.randint(4, 9)):
        person, other = chance.sample(people, 2)
        if step > 1 and chance.random() < 0.15:
            person.copy_from(other)
        if chance.random() < 0.1 and len(person.said) > 2 and not person.is_waiting:
            person.said = []
        mixed += _take_turn(api, http, person, chance, has_tool=has_tool, turn=f"{seed}: step {step}")
    for session_id in {one.sessions[-1] for one in people if one.is_waiting and one.sessions}:
        http.post(f"/api/sessions/{session_id}/cancel")  # a turn that waits takes one of the places for turns
    return mixed


def _take_turn(
    api: Api, http: httpx2.Client, person: Person, chance: random.Random, *, has_tool: bool, turn: str
) -> list[str]:
    replies: list[ScriptedReply] = []
    if chance.random() < 0.6:
        secret = f"secret-of-{person.name}-{turn.rpartition(' ')[2]}."
        (api.workspace / "note.txt").write_text(secret)
        person.allowed.add(secret)
        replies.append(
            ScriptedReply("", tool_calls=(PracticeCall("read_file", '{"path":"note.txt"}', "s1"),))
        )
    if has_tool and not person.is_waiting and chance.random() < 0.5:
        replies.append(ScriptedReply("", tool_calls=(PracticeCall("look", "{}", "c1"),)))
    replies.append(ScriptedReply("Done."))
    api.say(*replies)
    text = chance.choice(("look at my file", "go on"))
    body = person.body(text, has_tool=has_tool)
    answer = http.post(_PATHS[person.protocol], json=body, headers=person.headers)
    assert answer.status_code == 200, (turn, answer.text)
    person.read(answer.json())
    person.sessions.append(answer.headers["x-whet-session"])
    seen = json.dumps([request.json_body for request in api.model.requests])
    secrets = {word.split(".")[0] + "." for word in seen.split("secret-of-")[1:]}
    return [f"{turn}, {person.name}: {word}" for word in secrets if f"secret-of-{word}" not in person.allowed]
