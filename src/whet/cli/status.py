"""The status line below the input: model, branch, folder, context, cost, mode, sandbox, background, plan.

Each part has a name for `ui.status_line`, and a rank: where the terminal is narrow, what matters least goes
first. It does not know where the line stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from whet.agent.session import Session
from whet.app.build import App
from whet.cli import jobs, mode
from whet.cli.plan import counted
from whet.cli.wording import clip, columns, count, printable
from whet.contract.events import Event, StepFinished
from whet.regular import read_regular_text

_BAR = 5
_KEPT = ("mode", "jobs", "context", "model", "plan", "cost", "branch", "sandbox", "folder")
"""What stays longest, first."""


class StatusFacts(msgspec.Struct, frozen=True):
    """What the line is made of; empty and zero parts are left out."""

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
    """Give the named parts in their order, in one line of at most `width` columns."""
    written = {name: text for name in parts if (text := _PARTS[name](facts))}
    for name in reversed(_KEPT):
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
    done, whole = facts.plan
    return f"plan {done}/{whole}" if whole and done < whole else ""


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
    """Give the branch of the git repository that holds `folder`, read without git; "" where there is none."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_file():  # a worktree or a submodule
                git = place / read_regular_text(git, 4_096).removeprefix("gitdir:").strip()
            elif not git.is_dir():
                continue
            head = read_regular_text(git / "HEAD", 4_096).strip()
        except (OSError, ValueError):
            return ""
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


class StatusBoard:
    """The facts of one chat. What is slow to find out is looked up by `look`, between turns."""

    def __init__(self, app: App, *, plain: bool) -> None:
        self._app = app
        self._plain = plain
        self._used_tokens = 0
        self._branch = branch_of(app.workspace)
        self._sandbox = "no sandbox" if app.settings.sandbox.mode == "off" else ""
        home, whole = str(Path.home()), str(app.workspace)
        self._folder = "~" + whole[len(home) :] if home != "/" and whole.startswith(home) else whole

    def see(self, event: Event) -> None:
        """Take what a step has spent."""
        if isinstance(event, StepFinished):
            usage = event.usage
            self._used_tokens = usage.prompt_tokens + usage.output_tokens

    async def look(self, session: Session) -> None:
        """Find out what may have changed: branch, context, whether commands are confined."""
        self._branch = branch_of(self._app.workspace)
        self._used_tokens = (await session.context.status()).used_tokens
        if "confinement" in self._app.__dict__ and not self._sandbox:  # made by the first command
            status = await asyncio.to_thread(self._app.confinement.status)
            self._sandbox = "sandbox" if status.holds else "no sandbox"

    def line(self, session: Session, width: int) -> str:
        """Give the line for a width; empty where none is wanted."""
        app = self._app
        window = session.model.window_tokens
        facts = StatusFacts(
            model=session.model.model,
            branch=self._branch,
            folder=self._folder,
            context_used=self._used_tokens / window if window else 0.0,
            tokens=session.usage.total_tokens,
            cost_usd=session.usage.cost_usd,
            is_estimate=bool(session.usage.estimated_tokens),
            mode=mode.mode_of(app.gate, session),
            sandbox=self._sandbox,
            jobs=len(jobs.running(app)),
            plan=counted(app.todo_lists.get(session.id)),
        )
        return status_line(facts, app.settings.ui.status_line, width, plain=self._plain)
