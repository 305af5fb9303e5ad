"""The practice model for the knowledge-gated world: it uses the facts in its request, or it guesses.

It is scripted, not a language model. It sets a setting correctly only if the fact is in a text that it
reads: memory in the system prompt, a loaded skill, an example, this conversation, or the text added to the
request. Among many other statements it can overlook the needed one: with d others in the same text it uses
one with probability 1 / (1 + a d), where a is `Habits.distraction`. If it overlooks the statement or there is
none, it guesses. All chances depend on the seed, the job and the fact, never on the arm, so that runs with
and without memory can be compared in pairs.
"""

from __future__ import annotations

import re

import msgspec

from whet_lab.practice import gated_review, tool_use
from whet_lab.practice.ask import CompletedCall, PracticeCall, PracticeRequest
from whet_lab.practice.gated_facts import (
    GUESSES,
    PROGRAM,
    FactStatement,
    Task,
    draw,
    find_claims,
    find_statements,
    parse_command,
    parse_task,
    program_command,
)
from whet_lab.practice.responder import strip_notes
from whet_lab.practice.review import is_review
from whet_lab.practice.script import ScriptedReply

_MAX_TRIES = 3


class Habits(msgspec.Struct, frozen=True):
    """How easily the model is distracted, the share of facts a review finds, and how often it invents one."""

    distraction: float = 0.01
    recall: float = 0.9
    invention: float = 0.05


class _Attempt(msgspec.Struct, frozen=True):
    """The last attempt at a task, and the steps run for it so far."""

    call: CompletedCall
    steps: list[CompletedCall]

    def value(self, key: str) -> str:
        """Return the value that the attempt used for a setting. For the order, that is the step before it."""
        if key == "before":
            earlier = [item for item in self.steps if item.index < self.call.index]
            return program_command(earlier[-1]).split()[0] if earlier else ""
        command = parse_command(program_command(self.call))
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

    def answer(self, request: PracticeRequest) -> ScriptedReply:
        """Answer a request: a task, or a review of the conversation."""
        if is_review(request):
            habits = self._habits
            return gated_review.choose_reply(
                request, gated_review.Chances(self._seed, habits.recall, habits.invention)
            )
        for at in range(len(request.messages) - 1, -1, -1):
            message = request.messages[at]
            task = parse_task(strip_notes(message.text)) if message.role == "user" else None
            if task is not None:
                return self._work(request, at, task)
        return ScriptedReply(
            "I know nothing but jobs: `Job N: run `tool` on `target`, number M. It takes ...`"
        )

    def _work(self, request: PracticeRequest, start: int, task: Task) -> ScriptedReply:
        calls = [item for item in request.completed_calls if item.index > start]
        if task.page and "web_fetch" in request.offers and not _calls_of(calls, "web_fetch"):
            return ScriptedReply(tool_calls=(_call("web_fetch", url=task.page),))
        if task.looks and not any(item.command in task.looks for item in calls):
            return ScriptedReply(tool_calls=tuple(_terminal(look) for look in task.looks))
        name_pattern = re.compile(rf"(?<![\w-])(?:{re.escape(task.tool)}|{re.escape(task.target)})(?![\w-])")
        if skills := tool_use.find_unopened_skills(request, start, name_pattern):
            return ScriptedReply(tool_calls=tuple(map(tool_use.open_skill, skills)))
        mine = [
            item for item in calls if program_command(item) and f" {task.number}" in program_command(item)
        ]
        tries = [item for item in mine if program_command(item).startswith(f"{task.tool} ")]
        steps = [item for item in mine if item not in tries]
        asked_at = max(at for at, message in enumerate(request.messages) if message.role == "user")
        new = [item for item in tries if item.index > asked_at]
        if new and new[-1].result_contains("ok: "):
            return ScriptedReply(f"Job {task.job} is done.")
        if len(new) >= _MAX_TRIES:
            return ScriptedReply(f"I could not do job {task.job}: {new[-1].result.strip()[:200]}")
        tried = _Attempt(tries[-1], steps) if tries else None
        settings = {key: self._choose_setting(request, start, task, key, tried) for key in task.keys}
        step = settings.get("before", "")
        if step and not any(program_command(item).startswith(f"{step} ") for item in steps):
            return ScriptedReply(tool_calls=(_terminal(f"{PROGRAM} {step} {task.target} {task.number}"),))
        return ScriptedReply(tool_calls=(_terminal(f"{PROGRAM} {task.command(settings)}"),))

    def _choose_setting(
        self, request: PracticeRequest, start: int, task: Task, key: str, last: _Attempt | None
    ) -> str:
        """Choose a value: stated here, used and not refused, known from elsewhere, or else guessed."""
        topic = (task.subject_of(key), key)
        stated_values = [
            item.value for item in _find_recent_statements(request, start) if item.topic == topic
        ]
        if stated_values:
            return stated_values[-1]
        tried = last.value(key) if last else ""
        refused = last is not None and last.is_refused(key)
        if tried and not refused:
            return tried
        for known_statements in _find_known_statements(request, start):
            mine = [item.value for item in known_statements if item.topic == topic and item.value != tried]
            others = len({item for item in known_statements if item.topic not in task.needs})
            chance = 1 / (1 + self._habits.distraction * others)
            if mine and draw(self._seed, "sees", task.job, *topic) < chance:
                return mine[-1]
        choices = [value for value in GUESSES.get(key, ("?",)) if value != tried] or ["?"]
        return choices[int(draw(self._seed, "guess", task.job, tried, *topic) * len(choices))]


def _find_recent_statements(request: PracticeRequest, start: int) -> list[FactStatement]:
    """Return the statements made since the task: by the program's results and by the person."""
    texts = [
        (item.index, item.result)
        for item in request.completed_calls
        if item.index > start and program_command(item)
    ]
    texts += [
        (at, strip_notes(m.text)) for at, m in enumerate(request.messages) if at > start and m.role == "user"
    ]
    return [statement for _, text in sorted(texts) for statement in find_statements(text)]


def _find_known_statements(request: PracticeRequest, start: int) -> list[list[FactStatement]]:
    """Return the statements known from elsewhere, one list per text, nearest first.

    The texts are the request, loaded skills and earlier results, and the system prompt.
    """
    near = "\n".join(m.text for at, m in enumerate(request.messages) if at >= start and m.role == "user")
    calls = [
        item.result for item in request.completed_calls if item.name == "skill_view" or item.index < start
    ]
    return [find_claims(text) for text in (near, *reversed(calls), request.system)]


def _calls_of(calls: list[CompletedCall], tool: str) -> list[CompletedCall]:
    return [item for item in calls if item.name == tool]


def _terminal(command: str) -> PracticeCall:
    return _call("terminal", command=command)


def _call(tool: str, **arguments: object) -> PracticeCall:
    return PracticeCall(tool, msgspec.json.encode(arguments).decode())
