"""The status line below the input: model, branch, folder, context, cost, mode, sandbox, background, plan.

Each part has a name for `ui.status_line`, and a rank: on a narrow terminal the least important parts are
dropped first. The screen places the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from whet.agent.session import Session
from whet.app.services import Services
from whet.cli.interactive import jobs, mode
from whet.contract.events import Event, StepFinished
from whet.regular import read_regular_text
from whet.terminal.plan import count_done
from whet.terminal.wording import clip, columns, count, printable

_BAR = 5
_PRIORITY = ("mode", "jobs", "context", "model", "plan", "cost", "branch", "sandbox", "folder")
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


def status_line(facts: StatusFacts, parts: Sequence[str], width: int, *, plain: bool = False) -> str:
    """Return the named parts in their order, in one line of at most `width` columns."""
    written = {name: text for name in parts if (text := _PARTS[name](facts))}
    for name in reversed(_PRIORITY):
        line = " · ".join(written.values())
        if columns(line) <= width:
            break
        if len(written) > 1:
            written.pop(name, None)
    line = clip(printable(" · ".join(written.values())), width)
    return line.translate(_PLAIN) if plain else line


_PLAIN = str.maketrans("▰▱·…", "#-~~")


def _context(facts: StatusFacts) -> str:
    if not facts.context_used:
        return ""
    used = min(facts.context_used, 1.0)
    full = round(used * _BAR)
    return f"{'▰' * full}{'▱' * (_BAR - full)} {used:.0%}"


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
}


def branch_of(folder: Path) -> str:
    """Return the branch of the git repository around `folder`, or an empty string if there is none.

    It is read without running git. A detached HEAD is shown by the first 8 digits of its commit.
    """
    for directory in (folder, *folder.parents):
        git = directory / ".git"
        try:
            if git.is_file():  # a worktree or a submodule
                git = directory / read_regular_text(git, 4_096).removeprefix("gitdir:").strip()
            elif not git.is_dir():
                continue
            head = read_regular_text(git / "HEAD", 4_096).strip()
        except (OSError, ValueError):
            return ""
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


class StatusBoard:
    """The status of one chat. `look` reads the slow parts between turns."""

    def __init__(self, services: Services, *, plain: bool) -> None:
        self._services = services
        self._plain = plain
        self._used_tokens = 0
        self._branch = branch_of(services.workspace)
        self._sandbox = "no sandbox" if services.settings.sandbox.mode == "off" else ""
        home, workspace = str(Path.home()), str(services.workspace)
        self._folder = (
            "~" + workspace[len(home) :] if home != "/" and workspace.startswith(home) else workspace
        )

    def record_usage(self, event: Event) -> None:
        """Record the tokens that a step used."""
        if isinstance(event, StepFinished):
            usage = event.usage
            self._used_tokens = usage.prompt_tokens + usage.output_tokens

    async def refresh(self, session: Session) -> None:
        """Read the parts that may have changed: branch, context, whether commands are sandboxed."""
        self._branch = branch_of(self._services.workspace)
        self._used_tokens = (await session.context.status()).used_tokens
        confinement = self._services.confinement.created  # by the first command
        if confinement is not None and not self._sandbox:
            status = await asyncio.to_thread(confinement.status)
            self._sandbox = "sandbox" if status.holds else "no sandbox"

    def line(self, session: Session, width: int) -> str:
        """Return the status line for a width, or an empty string if the person wants none."""
        services = self._services
        window = session.model.window_tokens
        facts = StatusFacts(
            model=session.model.model,
            branch=self._branch,
            folder=self._folder,
            context_used=self._used_tokens / window if window else 0.0,
            tokens=session.usage.total_tokens,
            cost_usd=session.usage.cost_usd,
            is_estimate=bool(session.usage.estimated_tokens),
            mode=mode.mode_of(services.gate.get(), session),
            sandbox=self._sandbox,
            jobs=len(jobs.running_processes(services.processes)),
            plan=count_done(services.todo_lists.get(session.id)),
        )
        return status_line(facts, services.settings.ui.status_line, width, plain=self._plain)
