"""The default responder, used when there is no script: rules that see one request and nothing else.

The models: `practice` (plain requests and the demo's tasks), `practice-steps-N` (benchmarks) and
`practice-echo`. All are scripted, not language models. The state of a task is read from the results in the
transcript, so any process can answer any request, also after a crash.
"""

from __future__ import annotations

import re
import zlib

import msgspec

from whet_lab.practice import (
    chapters_task,
    cleanup_task,
    depot,
    hostile,
    orders_task,
    plain,
    review,
    shop,
    summary_task,
    survey_task,
)
from whet_lab.practice.ask import Json, Offer, PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import plain_value

MODELS = ("practice", "practice-echo", "practice-steps-3", "practice-steps-20", "practice-steps-1000")

_STEPS = re.compile(r"practice-steps-(\d+)")
_GO_ON = re.compile(r"\W*(please )?(go on|go ahead|continue|carry on|proceed|resume|keep going|next)\b", re.I)
_GREETING = re.compile(r"\W*(hi|hello|hey|good (morning|evening|day))\b", re.I)
_NOTE = re.compile(r"^\[[^\n]*\]$|<(\w[\w-]*)>.*?</\1>", re.M | re.S)
_TASKS = (
    (orders_task.MATCH, orders_task.proceed),
    (cleanup_task.MATCH, cleanup_task.proceed),
    (chapters_task.MATCH, chapters_task.choose_reply),
    (depot.MATCH, depot.proceed),
    (shop.MATCH, shop.proceed),
    (hostile.MATCH, hostile.proceed),
    (summary_task.MATCH, summary_task.proceed),
    (survey_task.QUESTION, survey_task.answer),
    (survey_task.MATCH, survey_task.proceed),
)


def is_offered(model: str) -> bool:
    """Return whether the practice server has a model of this name."""
    return model in MODELS or _STEPS.fullmatch(model) is not None


def answer(request: PracticeRequest) -> ScriptedReply:
    """Answer a request from its content alone."""
    steps = _STEPS.fullmatch(request.model)
    if steps:
        return take_step(request, int(steps[1]))
    if request.model == "practice-echo":
        return ScriptedReply(request.last_user)
    reply = _with_ids(_choose_reply(request), request)
    if request.thinking and not reply.reasoning:
        reply = msgspec.structs.replace(reply, reasoning="(A scripted stand-in does not think.)")
    return reply


def _choose_reply(request: PracticeRequest) -> ScriptedReply:
    """Choose the reply to the newest request that is recognised.

    A message that only says "go on", or that arrived between two steps, leaves the earlier request in
    force.
    """
    if review.is_review(request):
        return review.proceed(request)
    for index in range(len(request.messages) - 1, -1, -1):
        message = request.messages[index]
        if message.role != "user":
            continue
        text = strip_notes(message.text)
        for pattern, choose_task_reply in _TASKS:
            if pattern.search(text):
                return choose_task_reply(request, index)
        if plain.matches(text):
            return plain.proceed(request, index, text)
        in_turn = index > 0 and request.messages[index - 1].role == "tool"
        if not in_turn and not _GO_ON.match(text):
            return ScriptedReply(_small_talk(text))
    return ScriptedReply(plain.INTRODUCTION)


def strip_notes(text: str) -> str:
    """Return a user message without the notes that an agent adds: [bracketed lines] and <tagged> blocks."""
    return _NOTE.sub("", text).strip()


def _small_talk(text: str) -> str:
    if _GREETING.match(text):
        return f"Hello. {plain.INTRODUCTION}"
    if re.search(r"what can you do|who are you|what are you|\bhelp\b", text, re.I):
        return plain.INTRODUCTION
    return f"I don't recognise that request. {plain.INTRODUCTION}"


def _with_ids(reply: ScriptedReply, request: PracticeRequest) -> ScriptedReply:
    """Return the reply with call ids that never repeat in a session, even after a compaction."""
    before = sum(len(message.calls) for message in request.messages)
    last = request.messages[-1].text if request.messages else ""
    calls = tuple(
        PracticeCall(
            call.name, call.arguments, f"call_{before + n}_{zlib.crc32((call.arguments + last).encode()):08x}"
        )
        for n, call in enumerate(reply.tool_calls, 1)
    )
    return msgspec.structs.replace(reply, tool_calls=calls)


_PREFERRED = ("noop", "echo", "read_file", "search_files", "todo", "terminal")
_FILE = re.compile(r"[\w./-]+\.\w{1,6}\b")


def take_step(request: PracticeRequest, steps: int) -> ScriptedReply:
    """Call a trivial tool, or report that all steps are done."""
    result_count = 0
    for message in reversed(request.messages):
        if message.role == "user":
            break
        result_count += message.role == "tool"
    if result_count >= steps:
        return ScriptedReply(
            f"Done: {result_count} tool results. (A scripted stand-in, not a language model.)"
        )
    offer = next((request.offers[name] for name in _PREFERRED if name in request.offers), None)
    offer = offer or next(iter(request.offers.values()), None)
    if offer is None:
        return ScriptedReply("There is no tool to call. (A scripted stand-in, not a language model.)")
    required: list[str] = offer.parameters.get("required") or []
    arguments = {name: _value(name, offer, request, result_count + 1) for name in required}
    if offer.name == "read_file" and "limit" in offer.properties:
        arguments["limit"] = 1_000 + result_count  # a call that repeats without change is stopped
    return ScriptedReply(tool_calls=(PracticeCall(offer.name, msgspec.json.encode(arguments).decode()),))


def _value(name: str, offer: Offer, request: PracticeRequest, step: int) -> object:
    schema: Json = offer.properties.get(name, {})
    if "path" in name or "file" in name:
        match = _FILE.search(request.last_user)
        return plain_value(schema, match[0] if match else "README.md")
    return plain_value(schema, "true" if name == "command" else f"step {step}")
