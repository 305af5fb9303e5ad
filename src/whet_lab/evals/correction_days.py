"""Measures on days of 1 to 50 turns whether a person's statement is reviewed and kept.

Each day runs on the real program with its own home and default settings. A turn is one command. Around the
middle of the day the person makes one statement worth keeping, of one of three kinds:

- value: a correction whose value the next call uses; learned without a model
- rule: a correction that no call shows; needs a review by the model
- fact: a statement in passing that corrects nothing

The practice model answers. In a review it quotes the person's statement as evidence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.protocols import NobodyPresent
from whet.review.jobs import read_review_job
from whet.review.spending import Weights, weigh
from whet.store import reviews
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.review import calls_in_review, is_review
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

StatementKind = Literal["value", "rule", "fact"]
ServerKind = Literal["caching", "silent", "unpriced"]
"""caching: the server reports cached tokens; silent: it reports none; unpriced: it reports none, and the
model's price is unknown."""
STATEMENTS: dict[StatementKind, str] = {
    "value": "No, the numbers begin at 7 in this project.",
    "rule": "No, that is not how we do it: reports here are written in metric units.",
    "fact": "The reports of this team go to Ines Huber every Friday.",
}
_USAGE_WITHOUT_CACHE: dict[str, Any] = {"prompt_tokens_details": {}}
_ORDINARY = "seq -s ' ' 1 900"
_CORRECTED = "seq -s ' ' 7 900"


class OrdinaryDay(msgspec.Struct, frozen=True):
    """A day that ended.

    `turns` counts the tasks, not the correcting turn. `is_kept` says whether the statement is in memory.
    `share` is the reviews' share of the day's cost, `weight` their cost in uncached tokens.
    """

    turns: int
    kind: StatementKind
    is_reviewed: bool
    is_kept: bool
    share: float
    weight: int


async def run_day(
    folder: Path,
    turns: int,
    kind: StatementKind,
    server_kind: ServerKind = "caching",
    *,
    without_commands: bool = False,
) -> OrdinaryDay:
    """Run one day of `turns` tasks in `folder`, which is created and not removed.

    A correction follows the middle task; a fact is part of its message. If `without_commands`, the agent only
    answers.
    """
    home = Home(folder / "home")
    (folder / "work").mkdir(parents=True)
    with PracticeServer(responder=partial(_answer, server_kind, without_commands=without_commands)) as server:
        flags: dict[str, object] = {
            "model.provider": "elsewhere" if server_kind == "unpriced" else "practice",
            "model.model": "practice",
            "model.base_url": server.base_url,
            "approval.mode": "auto",
        }
        settings = load(home, flags, environ={}).settings
        app = await App.start(home, settings, {}, NobodyPresent(), folder / "work")
        try:
            session = await app.new_session()
            stated_at = 0
            for turn in range(1, turns + 1):
                texts = [f"Task {turn}: go on with the next file."]
                if turn == (turns + 1) // 2 and kind == "fact":
                    texts = [f"{STATEMENTS[kind]} {texts[0]}"]
                elif turn == (turns + 1) // 2:
                    texts.append(f"{STATEMENTS[kind]} Do it again.")
                if not stated_at and STATEMENTS[kind] in texts[-1]:
                    stated_at = turn + len(texts) - 1
                for text in texts:
                    await run_turn(session, session.user_message(text), lambda event: None)
                    await app.reviews.drain()
            rows = app.database.read_now(reviews.list_reviews)
            usage = app.database.read_now(lambda db: reviews.usage_since(db, ""))
        finally:
            await app.aclose()
    finished = [row for row in rows if row.state == "done"]
    review_weight, other_weight = (weigh(part, Weights()) for part in (usage.reviews, usage.others))
    files = [path for path in home.root.glob("memories/*.md") if path.is_file()]
    statement = STATEMENTS[kind].removeprefix("No, ")
    return OrdinaryDay(
        turns=turns,
        kind=kind,
        is_reviewed=any(read_review_job(row.payload).turn >= stated_at for row in finished),
        is_kept=any(statement in path.read_text("utf-8") for path in files),
        share=review_weight / (review_weight + other_weight) if review_weight + other_weight else 0.0,
        weight=review_weight,
    )


def summarise_days(days: Sequence[OrdinaryDay]) -> dict[str, int]:
    """Return how many days there are, and how many were reviewed and kept their statement."""
    return {
        "days": len(days),
        "reviewed": sum(day.is_reviewed for day in days),
        "kept": sum(day.is_kept for day in days),
    }


def _answer(server_kind: ServerKind, request: PracticeRequest, *, without_commands: bool) -> ScriptedReply:
    reply = _choose_reply(request, without_commands=without_commands)
    return reply if server_kind == "caching" else msgspec.structs.replace(reply, usage=_USAGE_WITHOUT_CACHE)


def _choose_reply(request: PracticeRequest, *, without_commands: bool) -> ScriptedReply:
    """Return the model's next reply.

    For a task it is one command, which obeys a correction, then an answer. In a review it is a note with the
    person's statement as evidence.
    """
    texts = [message.text for message in request.messages if message.role == "user"]
    transcript = "\n".join(texts)
    statement = next((text for text in STATEMENTS.values() if text in transcript), "")
    if is_review(request):
        if calls_in_review(request) or not statement:
            return ScriptedReply("Nothing more to save.")
        return _call("memory", action="add", content=statement, evidence=[statement])
    task_index = max(index for index, message in enumerate(request.messages) if message.role == "user")
    if without_commands or any(call.index > task_index for call in request.completed_calls):
        return ScriptedReply("Done.")
    is_corrected = statement in (STATEMENTS["value"], STATEMENTS["rule"])
    return _call("terminal", command=_CORRECTED if is_corrected else _ORDINARY)


def _call(tool: str, **arguments: object) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, json.dumps(arguments)),))
