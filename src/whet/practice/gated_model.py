"""The practice model for the knowledge-gated world: it uses the facts in its request, or it guesses.

It is scripted, not a language model. It sets a setting correctly only if the fact is in a text that it
reads: memory in the system prompt, a loaded skill, an example, this conversation, or the text added to the
request. Among many other statements it can overlook the one it needs: with d others in the same text it
uses one with probability 1 / (1 + a d). If it overlooks the statement or there is no statement, it
guesses. All chances depend on the seed, the job and the fact, never on the arm, so that runs with and
without memory can be compared in pairs.
"""

from __future__ import annotations

import re

import msgspec

from whet.practice import gated_review, tool_use
from whet.practice.ask import DoneCall, PracticeCall, PracticeRequest
from whet.practice.brain import own_words
from whet.practice.gated_facts import (
    GUESSES,
    PROGRAM,
    FactStatement,
    Task,
    claims,
    draw,
    ran,
    read_command,
    read_task,
    statements,
)
from whet.practice.review import is_review
from whet.practice.script import ScriptedReply

_MAX_TRIES = 3


class Habits(msgspec.Struct, frozen=True):
    """How easily the model is distracted, the share of facts that a review finds, and how often it invents
    one."""

    distraction: float = 0.01
    recall: float = 0.9
    invention: float = 0.05


class _Tried(msgspec.Struct, frozen=True):
    """The last attempt at a task, and the steps run for it so far."""

    call: DoneCall
    steps: list[DoneCall]

    def value(self, key: str) -> str:
        """Return the value that the attempt used for a setting. For the order this is the step before the
        attempt."""
        if key == "before":
            earlier = [item for item in self.steps if item.at < self.call.at]
            return ran(earlier[-1]).split()[0] if earlier else ""
        command = read_command(ran(self.call))
        return command.settings.get(key, "") if command else ""

    def is_refused(self, key: str) -> bool:
        """Return whether the result says that this setting was wrong."""
        if key == "before":
            return "is not ready" in self.call.result
        return f"`{key}={self.value(key)}` is wrong" in self.call.result


class GatedModel:
    """The model for the world of one seed. `answer` is a pure function of the request."""

    def __init__(self, seed: int, habits: Habits | None = None) -> None:
        self._seed = seed
        self._habits = habits or Habits()

    def answer(self, ask: PracticeRequest) -> ScriptedReply:
        """Answer a request: a task, or a review of the conversation."""
        if is_review(ask):
            habits = self._habits
            return gated_review.proceed(
                ask, gated_review.Chances(self._seed, habits.recall, habits.invention)
            )
        for at in range(len(ask.heard) - 1, -1, -1):
            message = ask.heard[at]
            task = read_task(own_words(message.text)) if message.role == "user" else None
            if task is not None:
                return self._work(ask, at, task)
        return ScriptedReply(
            "I know nothing but jobs: `Job N: run `tool` on `target`, number M. It takes ...`"
        )

    def _work(self, ask: PracticeRequest, start: int, task: Task) -> ScriptedReply:
        calls = [item for item in ask.done if item.at > start]
        if task.page and "web_fetch" in ask.offers and not _named(calls, "web_fetch"):
            return _call("web_fetch", url=task.page)
        name_pattern = re.compile(rf"(?<![\w-])(?:{re.escape(task.tool)}|{re.escape(task.target)})(?![\w-])")
        if skills := tool_use.skills_to_open(ask, start, name_pattern):
            return ScriptedReply(tool_calls=tuple(map(tool_use.open_skill, skills)))
        mine = [item for item in calls if ran(item) and f" {task.number}" in ran(item)]
        tries = [item for item in mine if ran(item).startswith(f"{task.tool} ")]
        steps = [item for item in mine if item not in tries]
        asked_at = max(at for at, message in enumerate(ask.heard) if message.role == "user")
        new = [item for item in tries if item.at > asked_at]
        if new and new[-1].said("ok: "):
            return ScriptedReply(f"Job {task.job} is done.")
        if len(new) >= _MAX_TRIES:
            return ScriptedReply(f"I could not do job {task.job}: {new[-1].result.strip()[:200]}")
        tried = _Tried(tries[-1], steps) if tries else None
        settings = {key: self._setting(ask, start, task, key, tried) for key in task.keys}
        step = settings.get("before", "")
        if step and not any(ran(item).startswith(f"{step} ") for item in steps):
            return _call("terminal", command=f"{PROGRAM} {step} {task.target} {task.number}")
        return _call("terminal", command=f"{PROGRAM} {task.command(settings)}")

    def _setting(self, ask: PracticeRequest, start: int, task: Task, key: str, last: _Tried | None) -> str:
        """Choose a value: stated in this conversation, used and not refused, known from elsewhere, or a
        guess."""
        topic = (task.subject_of(key), key)
        stated_values = [item.value for item in _told(ask, start) if item.about == topic]
        if stated_values:
            return stated_values[-1]
        tried = last.value(key) if last else ""
        refused = last is not None and last.is_refused(key)
        if tried and not refused:
            return tried
        for known_statements in _known(ask, start):
            mine = [item.value for item in known_statements if item.about == topic and item.value != tried]
            others = len({item for item in known_statements if item.about not in task.needs})
            chance = 1 / (1 + self._habits.distraction * others)
            if mine and draw(self._seed, "sees", task.job, *topic) < chance:
                return mine[-1]
        choices = [value for value in GUESSES.get(key, ("?",)) if value != tried] or ["?"]
        return choices[int(draw(self._seed, "guess", task.job, tried, *topic) * len(choices))]


def _told(ask: PracticeRequest, start: int) -> list[FactStatement]:
    """Return the statements made since the task: by the program's results and by the person."""
    texts = [(item.at, item.result) for item in ask.done if item.at > start and ran(item)]
    texts += [(at, own_words(m.text)) for at, m in enumerate(ask.heard) if at > start and m.role == "user"]
    return [statement for _, text in sorted(texts) for statement in statements(text)]


def _known(ask: PracticeRequest, start: int) -> list[list[FactStatement]]:
    """Return the statements known from elsewhere, one list per text, nearest first: the text of the request,
    loaded skills and earlier results, the system prompt."""
    near = "\n".join(m.text for at, m in enumerate(ask.heard) if at >= start and m.role == "user")
    calls = [item.result for item in ask.done if item.name == "skill_view" or item.at < start]
    return [claims(text) for text in (near, *reversed(calls), ask.system)]


def _named(done: list[DoneCall], tool: str) -> list[DoneCall]:
    return [item for item in done if item.name == tool]


def _call(tool: str, **arguments: object) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, msgspec.json.encode(arguments).decode()),))
