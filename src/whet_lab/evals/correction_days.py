"""Days of 1 to 50 turns with one correction, on the real program: is the correction reviewed, and kept?

Each day has a home of its own and shipped settings. A turn is one command of ordinary size. The person
corrects the turn before, either with a value that the next call takes (a lesson that needs no model) or with
a rule that no call shows (which needs a review by the model). The practice model answers; the review points
at the person's sentence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

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

CorrectionKind = Literal["value", "rule"]
CORRECTIONS: dict[CorrectionKind, str] = {
    "value": "No, the numbers begin at 7 in this project.",
    "rule": "No, that is not how we do it: reports here are written in metric units.",
}
_ORDINARY = "seq -s ' ' 1 900"
_CORRECTED = "seq -s ' ' 7 900"


class CorrectionDay(msgspec.Struct, frozen=True):
    """A day that ended. `turns` includes the corrected one, not the correction; `share` is the reviews' share
    of the day's cost, and `is_kept` says whether the correction is in memory."""

    turns: int
    kind: CorrectionKind
    is_reviewed: bool
    is_kept: bool
    share: float


async def run_day(folder: Path, turns: int, kind: CorrectionKind) -> CorrectionDay:
    """Run one day: the correction follows the middle turn. `folder` is created and not removed."""
    home = Home(folder / "home")
    (folder / "work").mkdir(parents=True)
    with PracticeServer(responder=_answer) as server:
        flags: dict[str, object] = {
            "model.provider": "practice",
            "model.model": "practice",
            "model.base_url": server.base_url,
            "approval.mode": "auto",
        }
        settings = load(home, flags, environ={}).settings
        app = await App.start(home, settings, {}, NobodyPresent(), folder / "work")
        try:
            session = await app.new_session()
            for turn in range(1, turns + 1):
                texts = [f"Task {turn}: go on with the next file."]
                if turn == (turns + 1) // 2:
                    texts.append(f"{CORRECTIONS[kind]} Do it again.")
                for text in texts:
                    await run_turn(session, session.user_message(text), lambda event: None)
                    await app.reviews.drain()
            rows = app.database.read_now(reviews.list_reviews)
            usage = app.database.read_now(lambda db: reviews.usage_since(db, ""))
        finally:
            await app.aclose()
    done = [row for row in rows if row.state == "done"]
    reviewed, others = (weigh(part, Weights()) for part in (usage.reviews, usage.others))
    files = [path for path in home.root.glob("memories/*.md") if path.is_file()]
    statement = CORRECTIONS[kind].removeprefix("No, ")
    return CorrectionDay(
        turns=turns,
        kind=kind,
        is_reviewed=any("correction" in read_review_job(row.payload).reasons for row in done),
        is_kept=any(statement in path.read_text("utf-8") for path in files),
        share=reviewed / (reviewed + others) if reviewed + others else 0.0,
    )


def summarise_days(days: Sequence[CorrectionDay]) -> dict[str, int]:
    """Return how many days were run, reviewed, and kept their correction."""
    return {
        "days": len(days),
        "reviewed": sum(day.is_reviewed for day in days),
        "kept": sum(day.is_kept for day in days),
    }


def _answer(request: PracticeRequest) -> ScriptedReply:
    """Do a task with one command, differently once corrected; in a review, point at the correction."""
    texts = [message.text for message in request.heard if message.role == "user"]
    correction = next((text for text in CORRECTIONS.values() if any(text in each for each in texts)), "")
    if is_review(request):
        if calls_in_review(request) or not correction:
            return ScriptedReply("Nothing more to save.")
        return _call("memory", action="add", content=correction, evidence=[correction])
    asked_at = max(at for at, message in enumerate(request.heard) if message.role == "user")
    if any(item.at > asked_at for item in request.done):
        return ScriptedReply("Done.")
    return _call("terminal", command=_CORRECTED if correction else _ORDINARY)


def _call(tool: str, **arguments: object) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, json.dumps(arguments)),))
