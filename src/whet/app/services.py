"""The parts that the sessions and interfaces of one process share. `app/build.py` creates them.

This module imports none of the modules that use a `Services`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.protocols import Person
from whet.lanes import ToolPool
from whet.late import LatePart
from whet.store.database import StateDatabase
from whet.tools.registry import OfferedTools

if TYPE_CHECKING:
    from whet.app.contexts import Contexts
    from whet.app.helpers.runs import HelperRuns
    from whet.app.learning.reviews import ReviewRunner
    from whet.app.learning.services import LearningServices
    from whet.app.model_links.models import Models
    from whet.app.plugins.sessions import PluginParts
    from whet.app.schedule_watch import ScheduleWatch
    from whet.app.tracing import Tracing
    from whet.approval.gate import PolicyGate
    from whet.lsp.service import CodeService
    from whet.mcp.servers import Servers
    from whet.rewind.recordings import Recordings
    from whet.sandbox.confinement import Confinement
    from whet.tools.todo import TodoLists
    from whet.tools.toolsets.terminal import SharedProcesses
    from whet.warm.openings import WarmStarts


class BaseParts(msgspec.Struct, frozen=True, kw_only=True):
    """The shared parts of a process that need neither plugins nor a model."""

    clock: Clock
    database: StateDatabase
    learning: LearningServices
    recordings: LatePart[Recordings]
    warm_starts: WarmStarts
    pool: ToolPool
    processes: SharedProcesses
    todo_lists: TodoLists
    confinement: LatePart[Confinement]
    helpers: LatePart[HelperRuns]


class Services(BaseParts, frozen=True, kw_only=True):
    """The shared parts of one process.

    `settings` are those that the program was started with; `models.settings` has the model that answers
    now. `person` answers questions. `source` names the interface. `plugins`, `mcp` and `tracing` are None
    unless they are configured.
    """

    home: Home
    settings: Settings
    workspace: Path
    source: str
    person: Person
    gate: LatePart[PolicyGate]
    models: Models
    contexts: Contexts
    tools: OfferedTools
    code: LatePart[CodeService]
    reviews: LatePart[ReviewRunner]
    schedules: LatePart[ScheduleWatch]
    plugins: PluginParts | None
    mcp: Servers | None
    tracing: Tracing | None
