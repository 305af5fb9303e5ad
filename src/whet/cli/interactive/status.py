"""The status line below the input: model, branch, folder, context, cost, mode, sandbox, jobs, plan.

The setting `ui.status_line` names the parts to show. On a narrow terminal the least important ones are left
out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from whet.agent.session import Session
from whet.app.git_branch import read_branch
from whet.app.modes import read_mode
from whet.app.services import Services
from whet.cli.interactive import jobs
from whet.contract.events import Event, ReviewFinished, ReviewQueued, StepFinished
from whet.sandbox.policy import shorten
from whet.terminal.plan import count_done
from whet.terminal.wording import clip, count, count_columns, exact, printable

_BAR = 5
_PRIORITY = ("mode", "jobs", "context", "model", "plan", "learning", "cost", "branch", "sandbox", "folder")
"""The parts by importance; the last is dropped first."""


class StatusFacts(msgspec.Struct, frozen=True):
    """The contents of the status line. Empty and zero parts are omitted."""

    model: str = ""
    branch: str = ""
    folder: str = ""
    context_used: float = 0.0
    tokens: int = 0
    cost_usd: float | None = None
    mode: str = ""
    sandbox: str = ""
    jobs: int = 0
    plan: tuple[int, int] = (0, 0)
    is_estimate: bool = False
    learning: str = ""


def status_line(facts: StatusFacts, parts: Sequence[str], width: int, *, plain: bool = False) -> str:
    """Return the named parts in their order, in one line of at most `width` columns."""
    texts = {name: _PARTS[name](facts) for name in parts}
    texts = {name: text for name, text in texts.items() if text}
    for name in reversed(_PRIORITY):
        if len(texts) < 2 or count_columns(" · ".join(texts.values())) <= width:
            break
        texts.pop(name, None)
    line = clip(printable(" · ".join(texts.values())), width)
    return line.translate(_PLAIN) if plain else line


_PLAIN = str.maketrans("▰▱·…", "#-~~")


def _name_model(model: str, account: str) -> str:
    return f"{model} ({account})" if account else model


def _context(facts: StatusFacts) -> str:
    if not facts.context_used:
        return ""
    used = min(facts.context_used, 1.0)
    filled = round(used * _BAR)
    return f"{'▰' * filled}{'▱' * (_BAR - filled)} {used:.0%}"


def _cost(facts: StatusFacts) -> str:
    if facts.cost_usd:
        mark = "~" if facts.is_estimate else ""
        return f"{mark}${facts.cost_usd:.2f}" if facts.cost_usd >= 0.1 else f"{mark}${facts.cost_usd:.4f}"
    return f"{count(facts.tokens)} tokens" if facts.tokens else ""


def _jobs(facts: StatusFacts) -> str:
    return f"{facts.jobs} in background" if facts.jobs else ""


def _plan(facts: StatusFacts) -> str:
    done, total = facts.plan
    return f"plan {done}/{total}" if total and done < total else ""


_PARTS: dict[str, Callable[[StatusFacts], str]] = {
    "mode": lambda facts: facts.mode,
    "model": lambda facts: facts.model,
    "branch": lambda facts: facts.branch,
    "folder": lambda facts: facts.folder,
    "context": _context,
    "cost": _cost,
    "sandbox": lambda facts: facts.sandbox,
    "jobs": _jobs,
    "plan": _plan,
    "learning": lambda facts: facts.learning,
}


class StatusBoard:
    """Collects the facts for the status line of one chat. `refresh` reads the slow ones between turns."""

    def __init__(self, services: Services, *, plain: bool) -> None:
        self._services = services
        self._plain = plain
        self._used_tokens = 0
        self._reviews: set[str] = set()
        self._has_learned = False
        self._branch = read_branch(services.workspace)
        self._sandbox = "no sandbox" if services.settings.sandbox.mode == "off" else ""
        self._folder = exact(shorten(str(services.workspace)))

    def record_event(self, event: Event) -> None:
        """Record the tokens that a step used, and the reviews that were queued or have ended."""
        if isinstance(event, StepFinished):
            usage = event.usage
            self._used_tokens = usage.prompt_tokens + usage.output_tokens
        elif isinstance(event, ReviewQueued):
            self._reviews.add(event.job_id)
            self._has_learned = False
        elif isinstance(event, ReviewFinished) and event.job_id in self._reviews:
            self._reviews.discard(event.job_id)
            self._has_learned = self._has_learned or event.state == "saved"

    def _learning(self) -> str:
        """Return whether reviews run or have learned something, in words, or an empty string."""
        if self._reviews and self._services.settings.review.worker == "auto":
            return "learning from this turn…"
        return "learned: /learned" if self._has_learned else ""

    async def refresh(self, session: Session) -> None:
        """Read the parts that may have changed: branch, context, whether commands are sandboxed."""
        self._branch = read_branch(self._services.workspace)
        self._used_tokens = (await session.context.status()).used_tokens
        confinement = self._services.confinement.created  # None before the first command
        if confinement is not None and not self._sandbox:
            status = await asyncio.to_thread(confinement.status)
            self._sandbox = "sandbox" if status.holds else "no sandbox"

    def line(self, session: Session, width: int) -> str:
        """Return the status line, at most `width` columns long; empty if the settings name no parts."""
        services = self._services
        window = session.model.window_tokens
        facts = StatusFacts(
            model=_name_model(session.model.model, services.models.settings.account),
            branch=self._branch,
            folder=self._folder,
            context_used=self._used_tokens / window if window else 0.0,
            tokens=session.usage.total_tokens,
            cost_usd=session.usage.cost_usd,
            is_estimate=bool(session.usage.estimated_tokens),
            mode=read_mode(services, session.id),
            sandbox=self._sandbox,
            jobs=len(jobs.running_processes(services.processes)),
            plan=count_done(services.todo_lists.get(session.id)),
            learning=self._learning(),
        )
        return status_line(facts, services.settings.ui.status_line, width, plain=self._plain)
