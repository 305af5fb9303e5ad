"""Goals pursued with a scripted model, real commands and a real store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.app.opened import open_app, practice_model
from tests.rewind.running import Consenting, call
from whet.config.permission_settings import ApprovalSettings, McpSettings, SandboxSettings
from whet.config.schema import WalletSettings
from whet.contract.events import Event
from whet.goals.pursuit import GoalRunner, report
from whet.goals.text import GoalReport, GoalWish
from whet.store import goals
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

_APPROVAL = ApprovalSettings(mode="auto", allow=("terminal", "write_file", "patch", "process", "mcp__*"))


def claim(kind: str, call: str, shows: str) -> dict[str, str]:
    """Give a claim as the model writes it."""
    return {"kind": kind, "call": call, "shows": shows}


def finish(*claims: dict[str, str]) -> ScriptedReply:
    """Give a reply that ends the goal."""
    return call("finish", claims=list(claims))


class Judge(Consenting):
    """A person who answers every question the same way."""

    def __init__(self, answer: str | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.questions: list[str] = []

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        self.questions.append(question)
        return self.answer


async def pursue(
    folder: Path,
    script: Sequence[ScriptedReply],
    wish: GoalWish,
    person: Judge | None = None,
    *,
    events: list[Event] | None = None,
    mcp: McpSettings | None = None,
    wallet: WalletSettings | None = None,
) -> GoalReport:
    (folder / "work").mkdir(exist_ok=True)
    with PracticeServer(script=list(script)) as server:
        model = practice_model(server.base_url, "practice-echo")
        home, work = folder / "home", folder / "work"
        sections = {"mcp": mcp or McpSettings(), "wallet": wallet or WalletSettings()}
        async with open_app(home, work, model, person or Judge(), approval=_APPROVAL, **sections) as app:
            runner = GoalRunner(app.sessions, (events if events is not None else []).append)
            ended = await runner.pursue(*await runner.start(wish))
            has_record = (home / "goals" / ended.id).exists()
            assert has_record is (ended.state in goals.OPEN), "a goal's record is removed at its end"
            return app.database.read_now(lambda db: report(db, ended))


async def pursue_all(
    folder: Path, scripts: Sequence[tuple[Sequence[ScriptedReply], GoalWish]]
) -> list[GoalReport]:
    """Pursue goals one after the other in one program; each may take as many steps as it has replies."""
    (folder / "work").mkdir(exist_ok=True)
    with PracticeServer(script=[reply for script, _ in scripts for reply in script]) as server:
        async with open_app(
            folder / "home",
            folder / "work",
            practice_model(server.base_url, "practice-echo"),
            Judge(),
            approval=_APPROVAL,
            sandbox=SandboxSettings(mode="off"),  # a jail for each goal costs most of the time
        ) as app:
            reports: list[GoalReport] = []
            for script, wish in scripts:
                runner = GoalRunner(app.sessions, lambda event: None)
                capped = msgspec.structs.replace(wish, steps=len(script))
                ended = await runner.pursue(*await runner.start(capped))
                reports.append(app.database.read_now(lambda db, ended=ended: report(db, ended)))
            return reports
