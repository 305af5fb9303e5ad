"""Build the review worker of a program, from a running process or from a home alone.

A separate worker process needs no model settings and no person: the job names the model, and a review asks
no questions. Enabled plugins are loaded for their providers, skills and memories, which are notified about
learned changes. None of their tools or hooks runs in a review.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import msgspec

from whet.agent.session import TurnLimits
from whet.app.learning.desk import LearningServices
from whet.app.learning.reviews import ReviewParts, ReviewRunner
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
from whet.contract.protocols import ModelLink, NobodyPresent, Provider
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


def make_worker(needs: ReviewParts, tell: Callable[[ReviewFinished], None]) -> ReviewWorker:
    """Create a worker from the parts of a process."""
    settings = needs.settings.review
    approval = msgspec.structs.replace(needs.settings.approval, mode="deny")
    warmth = WarmStarts(needs.home, needs.settings.warm, needs.database, needs.clock)

    async def reopen(session_id: str, link: ModelLink) -> ModelLink:
        return await warmth.reopen_link(session_id, link)

    parts = ForkParts(
        database=needs.database,
        clock=needs.clock,
        tools=_tools(needs),
        policy=PolicyGate(approval, NobodyPresent(), needs.grants, needs.home.root),
        bind=needs.learning.bind,
        reopen=reopen,
        budget=Budget(needs.database, needs.clock, settings),
        limits=TurnLimits(settings.max_steps, settings.timeout_s),
        digest_tokens=settings.digest_tokens,
    )
    return ReviewWorker(
        parts,
        needs.learning.service_of,
        settings,
        lambda order: _connect(needs, order),
        tell,
        Checks(make_probe(needs.home, needs.settings), lambda order: _judge(needs, order)),
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
            connect_plugins(plugins, learning.desk),
            aclosing(ReviewRunner(parts, make_worker)) as reviews,
        ):
            yield reviews
    finally:
        pool.close()
        dialer.close()
        database.close()


def _tools(needs: ReviewParts) -> dict[str, Tool]:
    rules = read_path_rules(needs.settings.approval.deny)
    files = FileTools(needs.pool, rules=rules, home=needs.home.main_root)
    tools = (*files, *needs.learning.tools(), *SessionTools(needs.database))
    return {tool.name: tool for tool in usable_tools(tools)}


def _connect(needs: ReviewParts, review_job: ReviewJob) -> tuple[Provider, bool]:
    """Return a job's provider, and whether it is the conversation's own with the same key, not the one set
    for reviews."""
    settings = needs.settings.review
    if settings.model:
        return _cap_calls(
            needs, needs.dialer.connect_alone(derive_second_model(review_job.runtime.model, settings))
        ), False
    if settings.provider or settings.base_url:
        raise ConfigError("review.provider needs review.model", hint="whet config set review.model NAME")
    provider = needs.dialer.connect_alone(review_job.runtime.model)
    if isinstance(provider, ServerProvider):
        provider.wiring.keys.prefer(review_job.runtime.key_name)
    return _cap_calls(needs, provider), True


def _judge(needs: ReviewParts, review_job: ReviewJob) -> Provider | None:
    """Return the model that judges the changes of a review before they are stored, or None if none is
    configured."""
    settings = needs.settings.judge
    if not settings.model:
        return None
    return _cap_calls(
        needs, needs.dialer.connect_alone(derive_second_model(review_job.runtime.model, settings))
    )


def _cap_calls(needs: ReviewParts, provider: Provider) -> Provider:
    return cap_calls(provider, needs.database, needs.clock, needs.settings.wallet, "review")


def make_probe(home: Home, settings: Settings) -> Look:
    """Create the function that runs a probe. The sandbox is tested at the first probe."""

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
