"""A session on the practice model whose turns run shell commands in a workspace."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.app.opened import ask, open_app, practice_model
from whet.agent.session import Session
from whet.app.build import App
from whet.config.permission_settings import ApprovalSettings, LspSettings
from whet.config.schema import RewindSettings
from whet.contract.events import Event
from whet.contract.protocols import Answer, ApprovalRequest, Person
from whet.rewind.rewinding import Rewinding
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ANSWER = ScriptedReply("Done.")


def shell(command: str, **arguments: object) -> ScriptedReply:
    return call("terminal", command=command, **arguments)


def call(name: str, **arguments: object) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(name, json.dumps(arguments)),))


class Consenting:
    """A person who decides every call the same way; `requests` is what they were asked."""

    def __init__(self, decision: Answer = "once") -> None:
        self.requests: list[ApprovalRequest] = []
        self.decision: Answer = decision

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        self.requests.append(request)
        return self.decision

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        return None


class Running:
    """One session. `events` is all that was shown."""

    def __init__(self, app: App, session: Session) -> None:
        self.app = app
        self.session = session
        self.events: list[Event] = []

    async def turn(self, text: str = "go") -> None:
        await ask(self.session, text, self.events)

    @property
    def rewinding(self) -> Rewinding:
        """The ways back."""
        return Rewinding(self.app.services.recordings.get(), self.session.log, self.app.services.workspace)

    def notices(self) -> list[str]:
        """Give what the person was told beside the conversation."""
        return [
            text
            for event in self.events
            if (text := getattr(event, "text", "")) and "notice" in repr(type(event)).lower()
        ]


@asynccontextmanager
async def running(
    folder: Path,
    script: Sequence[ScriptedReply],
    rewind: RewindSettings | None = None,
    *,
    person: Person | None = None,
    session_id: str = "",
    lsp: LspSettings | None = None,
) -> AsyncGenerator[Running]:
    """Give a session in `folder`/work with its home in `folder`/home: a new one, or one to go on with. Every
    call is allowed, or by the person, where one is given."""
    (folder / "work").mkdir(exist_ok=True)
    with PracticeServer(script=list(script)) as server:
        async with open_app(
            folder / "home",
            folder / "work",
            practice_model(server.base_url, "practice-echo"),
            person or Consenting(),
            approval=ApprovalSettings(mode="ask", ask=("terminal",))
            if person is not None
            else ApprovalSettings(mode="auto", allow=("terminal", "write_file", "patch", "process")),
            rewind=rewind or RewindSettings(),
            lsp=lsp or LspSettings(enabled=False),
        ) as app:
            session = await (app.open_session(session_id) if session_id else app.new_session())
            yield Running(app, session)
