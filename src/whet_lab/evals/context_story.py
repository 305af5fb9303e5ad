"""Long conversations to replay through context engines, and the facts asked for afterwards.

A synthetic one is tool work with facts planted in results, in the person's messages and in answers. For a
stored one, strings that occur exactly once (numbers, paths, names with digits) become the facts.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from whet.contract.errors import ProviderError
from whet.contract.messages import Message, ToolCall
from whet.contract.protocols import ModelReply, Provider
from whet.contract.texts import from_json

MAX_FACTS = 400
_TURN_STEPS = 10
_NOISE = (
    "checked the order lines of the batch and found them in the expected state",
    "the totals agree with what the ledger says for that day",
    "no line was rejected, two were rounded to whole cents",
    "the next batch depends on nothing that was seen here",
)
_PLACES = ("cellar", "harbour", "meadow", "orchard", "quarry", "station", "tower", "valley")
_SINGLE = re.compile(
    r"(?<![\w/.-])((?:[\w.-]+/)+[\w.-]{3,60}|\d{4,12}|[A-Za-z]+[-_]\d[\w-]{3,40})(?![\w/.-])"
)


class Fact(msgspec.Struct, frozen=True):
    """A value that occurs once. `key` is the words to search for it, `place` its origin.

    The origin is result, person or answer.
    """

    key: str
    value: str
    place: str

    @property
    def question(self) -> str:
        """The question for a model."""
        return f"What value belongs to: {self.key}? Answer with the value alone."


class Story(msgspec.Struct, frozen=True):
    """A conversation and its facts. `paths` are the files that its calls name."""

    name: str
    messages: list[Message]
    facts: list[Fact]
    paths: list[str]


def make_synthetic(count: int) -> Story:
    """Return a story of about `count` messages: a request, ten steps of one call each, an answer, and so on.

    It is always the same.
    """
    rng = random.Random(1)
    messages: list[Message] = []
    facts: list[Fact] = []
    paths: list[str] = []
    step = 0
    while len(messages) < count:
        turn = len(facts)
        fact = _fact(rng, len(facts), "person")
        facts.append(fact)
        text = f"Go through the next {_TURN_STEPS} batches. Keep in mind: {fact.key} is {fact.value}."
        messages.append(Message("user", text))
        for _ in range(_TURN_STEPS):
            step += 1
            path = f"batches/part{step // 50}/batch{step}.csv"
            paths.append(path)
            facts.append(_fact(rng, len(facts), "result"))
            messages += _step(rng, step, path, facts[-1])
        fact = _fact(rng, len(facts), "answer")
        facts.append(fact)
        messages.append(Message("assistant", f"Done with part {turn}. I set {fact.key} to {fact.value}."))
    return Story(f"synthetic, {len(messages):,} messages", messages, _spread(facts), paths)


def build_story(name: str, messages: Sequence[Message]) -> Story:
    """Return a story of a given conversation; its facts are the strings that occur exactly once."""
    counts: Counter[str] = Counter()
    for message in messages:
        for text in (message.text, *(call.arguments for call in message.tool_calls)):
            counts.update(match[1] for match in _SINGLE.finditer(text))
    facts: list[Fact] = []
    for message in messages:
        origin = {"user": "person", "assistant": "answer", "tool": "result"}[message.role]
        for match in _SINGLE.finditer(message.text):
            before = re.findall(r"[^\W\d_]{3,}", message.text[max(match.start() - 80, 0) : match.start()])
            if counts[match[1]] == 1 and len(before) >= 2:
                facts.append(Fact(" ".join(before[-4:]), match[1], origin))
    paths = [path for message in messages for call in message.tool_calls for path in _paths(call.arguments)]
    return Story(name, list(messages), _spread(facts), list(dict.fromkeys(paths)))


def _fact(rng: random.Random, number: int, origin: str) -> Fact:
    return Fact(
        f"code of {_PLACES[number % len(_PLACES)]}{number}", f"v{rng.randrange(10**7, 10**8)}", origin
    )


def _step(rng: random.Random, step: int, path: str, fact: Fact) -> list[Message]:
    noise = [rng.choice(_NOISE) for _ in range(24)]
    call = ToolCall(f"call_{step}", "read_file", json.dumps({"path": path}))
    body = "\n".join((*noise[:12], f"{fact.key} = {fact.value}", *noise[12:]))
    reply = Message("assistant", f"Looking at batch {step}: {rng.choice(_NOISE)}.", (call,))
    return [reply, Message("tool", body, tool_call_id=call.id, tool_name=call.name)]


def _spread(facts: list[Fact]) -> list[Fact]:
    """Return at most 400 facts, spread over the whole conversation."""
    if len(facts) <= MAX_FACTS:
        return facts
    return [facts[index * len(facts) // MAX_FACTS] for index in range(MAX_FACTS)]


def _paths(arguments: str) -> list[str]:
    try:
        values = from_json(arguments, dict[str, object])
    except (msgspec.DecodeError, UnicodeError):
        return []
    return [value for key, value in values.items() if key in ("path", "file_path") and isinstance(value, str)]


_ANSWER = "Answer the last question from this conversation alone. Say `unknown` where it does not tell."
_GRADE = "You grade answers. Reply with one digit from 0 (wrong or unknown) to 5 (exactly right)."


class ModelJudge:
    """Asks and grades with the model of `provider`."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def score(self, view: Sequence[Message], facts: Sequence[Fact]) -> float:
        """Return the mean grade, between 0 and 1. Raises ProviderError."""
        grades = [await self._grade(view, fact) for fact in facts]
        return sum(grades) / (5 * len(grades)) if grades else 0.0

    async def _grade(self, view: Sequence[Message], fact: Fact) -> int:
        answer = await self._ask(_ANSWER, [*view, Message("user", fact.question)])
        prompt = f"Question: {fact.question}\nRight answer: {fact.value}\nGiven answer: {answer[:500]}"
        match = re.search(r"[0-5]", await self._ask(_GRADE, [Message("user", prompt)]))
        return int(match[0]) if match else 0

    async def _ask(self, system: str, messages: Sequence[Message]) -> str:
        return (await ask_once(self._provider, system, messages)).message.text


async def ask_once(provider: Provider, system: str, messages: Sequence[Message]) -> ModelReply:
    """Return a model's reply to a single request without tools. Raises ProviderError."""
    async for item in provider.open(system, (), "judge").stream(messages):
        if isinstance(item, ModelReply):
            return item
    raise ProviderError("the model ended its stream without a reply")
