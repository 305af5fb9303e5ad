"""Runs a person's own tasks with their own model: every arm, several times, in order, in fresh folders.

Each run of an arm has its own home, in which it learns from task to task. Each outcome is stored at once,
so that a run can be stopped and resumed. The folder is a working folder, not a sandbox: the model's
actions are limited by the person's approval settings.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import apsw
import msgspec

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import NotFound
from whet.contract.events import EndReason, TurnEnd
from whet.contract.messages import Usage
from whet.contract.origin import Origin
from whet.contract.protocols import NobodyPresent
from whet.contract.texts import from_json
from whet.memory import notes
from whet.memory.reader import hash_entry
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.store import sessions
from whet.store.learned import ContextItem
from whet.store.outcomes import count_session_calls
from whet.warm import template
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.template_store import WarmTemplates
from whet_lab.evals import task_folder
from whet_lab.evals.own_tasks import OwnTask

_TOOLSETS: dict[str, frozenset[str]] = {
    "off": frozenset(),
    "memory": frozenset({"memory"}),
    "skills": frozenset({"skills"}),
    "warm": frozenset(),
    "all": frozenset({"memory", "skills"}),
}
_WARM = frozenset({"warm", "all"})
_TEMPLATE = "so-far"
ARMS = tuple(_TOOLSETS)


class TaskOutcome(msgspec.Struct, frozen=True):
    """One task under one arm: whether its verifier accepted it, and its usage, the review's included.

    `verifier_output` is the end of the verifier's output if it did not accept the task. `leaked` names other
    tasks whose secrets were in this task's requests.
    """

    arm: str
    repeat: int
    task: str
    ok: bool
    reason: EndReason
    steps: int
    calls: int
    failed_calls: int
    usage: Usage
    review_usage: Usage
    duration_s: float
    verifier_output: str = ""
    leaked: tuple[str, ...] = ()


class Label(msgspec.Struct, frozen=True):
    """The run that an outcome belongs to: its name, the arm whose toolsets it has, and whether it learns."""

    name: str
    arm: str
    repeat: int
    learns: bool = True


class _AgentRun(msgspec.Struct, frozen=True):
    """The agent's work on one task. `sent_text` is the text of all its requests."""

    end: TurnEnd
    sent_text: str
    review_usage: Usage
    calls: int
    failed_calls: int


class OwnTaskSetup:
    """One set of tasks on one model. `api_keys` are the provider's; `folder` holds homes and outcomes.

    Claims `folder`. Raises ConfigError if it holds outcomes of other tasks or of another model.
    """

    def __init__(
        self,
        tasks: Sequence[OwnTask],
        origin: Path,
        folder: Path,
        settings: Settings,
        api_keys: Mapping[str, str],
    ) -> None:
        self.tasks = tasks
        self.folder = folder
        self._origin = origin
        self._settings = settings
        self._api_keys = api_keys
        self._claim_folder()

    def read_outcomes(self) -> list[TaskOutcome]:
        """Read all stored outcomes."""
        paths = sorted((self.folder / "runs").glob("*.json"))
        return [from_json(path.read_bytes(), TaskOutcome) for path in paths]

    async def run(self, arm: str, repeat: int, progress: Callable[[str], None]) -> None:
        """Do the missing tasks of this run of the arm, which learns from one to the next."""
        await self.run_on(self.home(arm, repeat), Label(arm, arm, repeat), progress)

    async def run_on(self, home: Home, label: Label, progress: Callable[[str], None]) -> list[TaskOutcome]:
        """Do the missing tasks of a label on a home, and return all its outcomes."""
        for task in self.tasks:
            path = self._path(label, task)
            if not path.exists():
                progress(f"{label.name} {label.repeat}: {task.name}")
                task_folder.store_result(path, await self._run_task(task, home, label))
        paths = [self._path(label, task) for task in self.tasks]
        return [from_json(path.read_bytes(), TaskOutcome) for path in paths]

    def _path(self, label: Label, task: OwnTask) -> Path:
        return self.folder / "runs" / f"{label.name}-{label.repeat}-{task.name}.json"

    def home(self, arm: str, repeat: int) -> Home:
        """Return the home in which this run of the arm learns."""
        return Home(self.folder / "homes" / f"{arm}-{repeat}")

    async def _run_task(self, task: OwnTask, home: Home, label: Label) -> TaskOutcome:
        """Do one task in a fresh folder, which is kept, and review it if the arm learns."""
        # One path for all tasks: notes hold in the folder in which they were learned.
        folder = self.folder / "workspace"
        await task_folder.prepare_folder(task, self._origin, folder)
        run = await self._ask_agent(task, home, label, folder)
        ok, output = await task_folder.verify(task, folder, self._settings.sandbox, home)
        self._keep_folder(folder, label, task)
        return TaskOutcome(
            arm=label.name,
            repeat=label.repeat,
            task=task.name,
            ok=ok,
            reason=run.end.reason,
            steps=run.end.steps,
            calls=run.calls,
            failed_calls=run.failed_calls,
            usage=run.end.usage,
            review_usage=run.review_usage,
            duration_s=run.end.duration_s,
            verifier_output=output,
            leaked=self._find_leaks(task, run.sent_text),
        )

    async def _ask_agent(self, task: OwnTask, home: Home, label: Label, folder: Path) -> _AgentRun:
        """Run the task's turn in a new session, and the reviews of it if the arm learns."""
        learns = label.learns and label.arm != "off"
        settings = self._arm_settings(label.arm, learns)
        async with aclosing(
            await App.start(home, settings, self._api_keys, NobodyPresent(), folder, source="eval")
        ) as app:
            warm = await self._build_examples(app, home, learns) if label.arm in _WARM else "off"
            session = await app.new_session(title=task.name, warm=warm)
            end = await run_turn(session, session.user_message(task.prompt), lambda event: None)
            prompt, _ = await app.database.read(lambda db: sessions.read_prefix(db, session.id))
            sent_text = "\n".join([prompt, *(message.text for message in session.log.messages)])
            usage_before = await app.database.read(_sum_review_usage)
            if learns and _TOOLSETS[label.arm]:
                await app.reviews.drain()
            usage_after = await app.database.read(_sum_review_usage)
            calls, failed_calls = await app.database.read(lambda db: count_session_calls(db, session.id))
        return _AgentRun(end, sent_text, _subtract_usage(usage_after, usage_before), calls, failed_calls)

    def _keep_folder(self, folder: Path, label: Label, task: OwnTask) -> None:
        """Move a task's folder to its permanent path, replacing an earlier one."""
        path = self.folder / "work" / f"{label.name}-{label.repeat}" / task.name
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(path)

    async def _build_examples(self, app: App, home: Home, learns: bool) -> str:
        """Build a template from this run's sessions so far, if it learns.

        Returns the name of the template to start with, or "off".
        """
        if learns:
            warm_templates = WarmTemplates(home, app.database, app.clock)
            try:
                await asyncio.to_thread(
                    warm_templates.build, BuildOptions(name=_TEMPLATE), MiningScope(min_messages=1)
                )
            except NotFound:
                return "off"  # no failed call with a correction to show yet
        return _TEMPLATE if template.path_of(home, _TEMPLATE).exists() else "off"

    async def list_items(self, home: Home) -> list[ContextItem]:
        """Return the learned items of a home."""
        async with aclosing(
            await App.start(
                home, self._arm_settings("all", False), self._api_keys, NobodyPresent(), self.folder
            )
        ) as app:
            part = await app.learning.build_prompt_part(("notes", "loads-skills"))
        return [item for item in part.items if item.hash]

    async def copy_home_without(self, item: ContextItem, source: Home, destination: Home) -> None:
        """Copy a home and remove one learned item from the copy."""
        shutil.rmtree(destination.root, ignore_errors=True)
        shutil.copytree(source.root, destination.root)
        async with aclosing(
            await App.start(
                destination, self._arm_settings("all", False), self._api_keys, NobodyPresent(), self.folder
            )
        ) as app:
            learning, origin = app.learning.owner_service, Origin("user", platform="eval")
            if item.kind == "skill":
                await learning.submit(SkillRequest("delete", item.name), origin)
                return
            for target, text in learning.reader.read_texts().items():
                for entry in notes.parse_entries(text):
                    if target == item.kind and hash_entry(entry) == item.name:
                        request = MemoryRequest("remove", target, old_text=entry.statement)
                        await learning.submit(request, origin)

    def _arm_settings(self, arm: str, learns: bool) -> Settings:
        """Return the settings of an arm: the person's settings with the arm's learning toolsets."""
        learned_toolsets = _TOOLSETS[arm]
        others = [name for name in self._settings.tools.toolsets if name not in ("memory", "skills")]
        tools = msgspec.structs.replace(
            self._settings.tools, toolsets=(*others, *sorted(learned_toolsets)), workspace=""
        )
        writes = "auto" if learns and learned_toolsets else "off"
        # A day counts as having used at least `free_tokens`: with so many, no review is skipped for its cost.
        review = msgspec.structs.replace(
            self._settings.review, writes=writes, worker="off", free_tokens=1_000_000_000
        )
        return msgspec.structs.replace(self._settings, tools=tools, review=review)

    def _find_leaks(self, task: OwnTask, sent: str) -> tuple[str, ...]:
        others = [other for other in self.tasks if other.name != task.name]
        return tuple(other.name for other in others if any(secret in sent for secret in other.secrets))

    def _claim_folder(self) -> None:
        model = (self._settings.model.provider, self._settings.model.model, self._settings.model.base_url)
        facts = {"model": model, "tasks": self.tasks}
        task_folder.claim_folder(self.folder, facts, "outcomes of other tasks or another model")


def _sum_review_usage(connection: apsw.Connection) -> Usage:
    rows = sessions.list_sessions(connection, 1_000_000, kinds=("review",))
    return sum((row.usage for row in rows), Usage())


def _subtract_usage(after: Usage, before: Usage) -> Usage:
    """Return the usage between two totals."""
    cost = None if after.cost_usd is None or before.cost_usd is None else after.cost_usd - before.cost_usd
    numbers = {
        name: getattr(after, name) - getattr(before, name)
        for name in Usage.__struct_fields__
        if name != "cost_usd"
    }
    return Usage(**numbers, cost_usd=cost)
