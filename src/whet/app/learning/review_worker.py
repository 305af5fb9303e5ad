"""Build the review worker, from the parts of a running program or from a home alone.

A separate worker process needs no model settings and no person, because the job names the model and a review
asks no questions. Plugins are loaded for their providers and skills, and for their memories, which are
notified about learned changes. Their tools and hooks do not run in reviews.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import msgspec

from whet.agent.session import TurnLimits
from whet.app.learning.reviews import ReviewParts, ReviewRunner
from whet.app.learning.services import LearningServices
from whet.app.model_links.models import MEMORY_FILE, Dialer
from whet.app.parts import cap_calls, learn_prices
from whet.app.plugins import parts as plugin_parts
from whet.app.plugins.memories import connect_plugins
from whet.approval.gate import PolicyGate
from whet.approval.risk import RiskScope
from whet.clock import SystemClock
from whet.config.key_hosts import derive_second_model
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.errors import ConfigError
from whet.contract.events import ReviewFinished
from whet.contract.protocols import NobodyPresent, Provider
from whet.contract.tools import Tool
from whet.lanes import ToolPool
from whet.providers.connect import ServerProvider
from whet.review.budget import Budget
from whet.review.fork import ForkParts, usable_tools
from whet.review.jobs import ReviewJob
from whet.review.judge import Checks
from whet.review.probes import Look
from whet.review.worker import ReviewWorker
from whet.sandbox.path_rules import read_path_rules
from whet.searchpath import find_shell
from whet.store.database import open_store
from whet.store.grants import GrantRepository
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.session import SessionTools
from whet.warm.openings import WarmStarts

_LIMIT_S = 20.0


def make_worker(parts: ReviewParts, report: Callable[[ReviewFinished], None]) -> ReviewWorker:
    """Create a worker from the parts of a process. It calls `report` after each review."""
    settings = parts.settings.review
    approval = msgspec.structs.replace(parts.settings.approval, mode="deny")
    warm_starts = WarmStarts(parts.home, parts.settings.warm, parts.database, parts.clock)
    fork_parts = ForkParts(
        database=parts.database,
        clock=parts.clock,
        tools=_make_tools(parts),
        policy=PolicyGate(approval, NobodyPresent(), parts.grants, parts.home.root),
        bind=parts.learning.bind,
        reopen=warm_starts.reopen_link,
        budget=Budget(parts.database, parts.clock, settings),
        limits=TurnLimits(settings.max_steps, settings.timeout_s),
        digest_tokens=settings.digest_tokens,
    )
    return ReviewWorker(
        fork_parts,
        parts.learning.service_of,
        settings,
        lambda review_job: _connect(parts, review_job),
        report,
        Checks(make_probe(parts.home, parts.settings), lambda review_job: _connect_judge(parts, review_job)),
    )


@asynccontextmanager
async def open_reviews(
    home: Home, settings: Settings, secrets: Mapping[str, str]
) -> AsyncGenerator[ReviewRunner]:
    """Open the reviews of a home for a process that does nothing else; everything is closed at the end."""
    home.ensure()
    clock, pool = SystemClock(), ToolPool()
    dialer = Dialer(settings, secrets, memory=home.root / MEMORY_FILE)
    learn_prices(home, clock)
    database = open_store(home, clock)
    try:
        learning = LearningServices(database, clock, home, settings)
        grants = GrantRepository(database, clock)

        def connect(model: ModelSettings) -> Provider:
            return cap_calls(dialer.connect(model), database, clock, settings.wallet, "plugin")

        plugins = plugin_parts.load(plugin_parts.PluginNeeds(home, settings, home.root, (), connect))
        dialer.plugins = plugins
        if plugins is not None:
            learning.trust(plugins.tools)
        parts = ReviewParts(home, settings, database, clock, learning, grants, pool, dialer)
        async with (
            connect_plugins(plugins, learning.owner_service),
            aclosing(ReviewRunner(parts, make_worker)) as reviews,
        ):
            yield reviews
    finally:
        pool.close()
        dialer.close()
        database.close()


def _make_tools(parts: ReviewParts) -> dict[str, Tool]:
    rules = read_path_rules(parts.settings.approval.deny)
    files = FileTools(parts.pool, rules=rules, home=parts.home.main_root)
    tools = (*files, *parts.learning.tools(), *SessionTools(parts.database))
    return {tool.name: tool for tool in usable_tools(tools)}


def _connect(parts: ReviewParts, review_job: ReviewJob) -> tuple[Provider, bool]:
    """Return the provider of a job, and whether it is that of the conversation: the settings may name another
    model for reviews."""
    settings = parts.settings.review
    if settings.model:
        model = derive_second_model(review_job.runtime.model, settings)
        return _cap_calls(parts, parts.dialer.connect_alone(model)), False
    if settings.provider or settings.base_url:
        raise ConfigError("review.provider needs review.model", hint="whet config set review.model NAME")
    provider = parts.dialer.connect_alone(review_job.runtime.model)
    if isinstance(provider, ServerProvider):
        provider.wiring.keys.prefer(review_job.runtime.key_name)
    return _cap_calls(parts, provider), True


def _connect_judge(parts: ReviewParts, review_job: ReviewJob) -> Provider | None:
    """Return the model that judges a review's changes before they are stored, or None if the settings name
    none."""
    settings = parts.settings.judge
    if not settings.model:
        return None
    model = derive_second_model(review_job.runtime.model, settings)
    return _cap_calls(parts, parts.dialer.connect_alone(model))


def _cap_calls(parts: ReviewParts, provider: Provider) -> Provider:
    return cap_calls(provider, parts.database, parts.clock, parts.settings.wallet, "review")


def make_probe(home: Home, settings: Settings) -> Look:
    """Create the function that runs a probe: a command that only reads, in a sandbox. It returns the output,
    or None if the command may not run. The sandbox is tested at the first probe."""

    def look(command: str, workspace: str) -> str | None:
        from whet.app.confining import confine  # noqa: PLC0415 - only where a review keeps a fact
        from whet.approval.actions import ActionView  # noqa: PLC0415 - as above
        from whet.approval.policy import GatePolicy  # noqa: PLC0415 - as above
        from whet.approval.shell_risk import analyse  # noqa: PLC0415 - as above
        from whet.tools.shell import command_environment  # noqa: PLC0415 - as above
        from whet.tools.toolsets.terminal import TERMINAL  # noqa: PLC0415 - as above

        root = os.path.realpath(workspace)
        if not os.path.isdir(root):
            return None
        risk = analyse(command, root, RiskScope(root, os.path.expanduser("~"), str(home.root)))
        action = ActionView(TERMINAL, command, command, risk.commands, risk.reasons)
        ruling = GatePolicy(settings.approval).judge(action, ())
        if risk.level != "safe" or risk.network or ruling.verdict != "allow":
            return None
        with closing(confine(home, settings.sandbox, deny=settings.approval.deny)) as confinement:
            return confinement.run_read_only(
                [find_shell(root), "-c", command], command_environment(os.environ), Path(root), _LIMIT_S
            )

    return look
