"""The gate before every tool call of every session: judge the call, ask the person if necessary, decide.

It fails closed: a call that can't be judged, that no one answers for or that was refused does not run, and
the model gets the reason. A session and its children ask one question at a time. How a person is asked and
how grants are stored is up to others. The modes and answers are documented in `ApprovalSettings`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import msgspec

from whet.approval.actions import depends_on_location, describe
from whet.approval.held_jobs import HeldJobs, explain_change, read_content
from whet.approval.person_request import (
    NOBODY_NOTICE,
    GateCase,
    build_request,
    decide_unasked,
    deny_for_person,
    digest_of,
    explain_absence,
    preview_changes,
)
from whet.approval.plans import Plans
from whet.approval.policy import GatePolicy, PolicyGrant, Ruling, SessionDownloads, SessionGrants
from whet.approval.risk import Analyse, RiskScope, ShellRisk
from whet.approval.tool_contents import AcceptedContents
from whet.approval.typed_lines import TypedLines
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalMode, ApprovalSettings
from whet.contract.errors import StoreError, ToolError
from whet.contract.events import ApprovalAsked, ApprovalDecided, Emit, Notice
from whet.contract.protocols import ConfirmCase, Confirmer, Decision, GateCall, GrantScope, Person, Reply
from whet.contract.tools import ToolOutput
from whet.question import list_edits
from whet.sandbox.path_rules import read_path_rules
from whet.visible import visible_line

if TYPE_CHECKING:  # importing these takes time, and most turns run no command
    from whet.approval.confined import JailGate
    from whet.approval.high_risk import HighRisk
    from whet.approval.sealed import Sealed
    from whet.store.grants import GrantRow

# Every exception that hostile arguments can cause. Other exceptions become a denial in dispatch.
_ANALYSIS_FAILS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    OSError,
    RuntimeError,
    MemoryError,
    ImportError,
    StoreError,
)


class GrantStore(Protocol):
    """Stores a person's "always" answers. Called from the event loop."""

    async def add(self, tool: str, pattern: str, workspace: str) -> None:
        """Store a grant. It is durable on return. Raises StoreError."""
        ...

    async def all(self) -> Sequence[GrantRow | PolicyGrant]:
        """Return every stored grant. Called before each call that needs one. Raises StoreError."""
        ...


class ServiceRoute(msgspec.Struct, frozen=True):
    """The confirmation service: which actions go to it, and the client that asks it."""

    high_risk: HighRisk
    confirmer: Confirmer


class GateParts(msgspec.Struct, frozen=True):
    """The parts of a program that its gate works with.

    Only the `service` decides on high-risk actions, except those that a rule denies. `jails` returns the
    interface to the sandboxes; without it, commands are judged as if they ran unconfined. `own_ports` are
    the ports of Whet's own servers on this machine. No call may touch what is `sealed`. `can_restore`
    returns whether a rewind brings a workspace's files back; without it, it does.
    """

    service: ServiceRoute | None = None
    jails: Callable[[], JailGate] | None = None
    own_ports: tuple[int, ...] = ()
    sealed: Sealed | None = None
    analyse: Analyse | None = None
    can_restore: Callable[[Path], Awaitable[bool]] | None = None


NO_PARTS = GateParts()


class PolicyGate:
    """Decides by rules, grants and mode, and asks `person` about the rest. One gate serves all sessions."""

    def __init__(
        self,
        settings: ApprovalSettings,
        person: Person,
        grants: GrantStore,
        whet_home: Path,
        parts: GateParts = NO_PARTS,
    ) -> None:
        self._service, self._held = parts.service, HeldJobs(parts.jails, self.root_of)
        self._jails, self._own_ports, self._can_restore = parts.jails, parts.own_ports, parts.can_restore
        self._settings, self._sealed = settings, parts.sealed
        if settings.allow or settings.ask or settings.deny:
            _ = self._policy  # report an invalid rule immediately
        self._person, self._store = person, grants
        main_home = Home(whet_home).main_root  # the other profiles and their keys are in it
        self._whet_home, self._user_home = os.path.realpath(main_home), os.path.expanduser("~")
        self._analyse = parts.analyse or _analyse_shell
        self.session_grants: SessionGrants = SessionGrants()
        self._contents, self._typed = AcceptedContents(whet_home), TypedLines()
        self._downloads = SessionDownloads()
        self._parents: dict[str, str] = {}
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @cached_property
    def _policy(self) -> GatePolicy:
        return GatePolicy(self._settings)

    @cached_property
    def plans(self) -> Plans:
        """The sessions that may only read, created at the first call or plan."""
        return Plans(self.root_of)

    def is_planning(self, session_id: str) -> bool:
        """Return whether a session may only read now."""
        return "plans" in vars(self) and self.plans.has(session_id)

    @property
    def mode(self) -> ApprovalMode:
        """The current mode."""
        return self._policy.mode

    def set_mode(self, mode: ApprovalMode) -> None:
        """Change the mode for later calls, in every session of the process."""
        self._policy.mode = mode

    def adopt(self, child_session_id: str, parent_session_id: str) -> None:
        """Share the grants of a session with a child session that it started, in both directions."""
        self._parents[child_session_id] = parent_session_id

    def forget_children(self, session_id: str) -> list[str]:
        """Forget the child sessions of a session and return them. The session keeps its grants."""
        children = [child for child in self._parents if self.root_of(child) == session_id]
        for child in children:
            del self._parents[child]
        return children

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Allow or deny `call`. Emits ApprovalAsked and ApprovalDecided around a question, and
        ApprovalDecided for every denial. A cancellation while a person is asked is passed on."""
        return await self._held.decide(call, partial(self._decide, call, emit))

    async def _decide(self, call: GateCall, emit: Emit) -> Decision:
        try:
            case = await self._add_jail_needs(self._case(call), emit)
            ruling = await self._judge(case)
            confirm = _make_confirm_case(self._service, case)
        except _ANALYSIS_FAILS as error:
            reason = f"The approval gate could not judge this call ({error}), so nothing was run."
            return _emit_decision(call, Decision("deny", "rule", reason), emit)
        if decision := decide_unasked(call, ruling, is_high_risk=confirm is not None):
            return _emit_decision(call, decision, emit)
        if confirm is not None and self._service is not None:
            await self._held.stop(case, emit)
            decision = await _ask_service(self._service, confirm, emit)
            self._record_run(case, with_missing=True) if decision.verdict == "allow" else None
            return _emit_decision(call, decision, emit)
        if ruling.verdict == "allow":
            return self._allow(case)
        asking = self._asking.setdefault(self.root_of(call.session_id), asyncio.Lock())
        async with asking:
            # The answer to an earlier question may have decided this one.
            case = await self._add_jail_needs(case, emit)
            ruling = await self._judge(case)
            return self._allow(case) if ruling.verdict == "allow" else await self._ask(case, ruling, emit)

    def _allow(self, case: GateCase) -> Decision:
        """Let a call run without a question. A call that only reads gets no openings."""
        with_missing = case.action.level != "safe"
        return Decision("allow", "rule", only_reads=self._record_run(case, with_missing=with_missing))

    def _record_run(self, case: GateCase, *, with_missing: bool) -> bool:
        """Record that a call will run, and open its sandbox. Returns whether that lets it write nothing."""
        self._typed.record(case.call)
        self._downloads.add(self.root_of(case.call.session_id), case.action.downloads)
        if self._jails is None or case.jailed is None:
            return False
        return self._jails().open_jail(case.call, case.action, case.jailed, with_missing=with_missing)

    async def _add_jail_needs(self, case: GateCase, emit: Emit) -> GateCase:
        """Return the case with its command's needs outside the sandbox, if it will run in one."""
        if self._jails is None or "command" not in case.call.tool.tags:
            return case
        if warning := await self._jails().warning(case.call):
            emit(Notice(warning))
        load_grants = partial(self._find_grants, case.call)
        jailed_call = await self._jails().find_needs(
            case.call, case.action, load_grants, guesses=self.mode != "ask"
        )
        if jailed_call is not None and case.action.level == "dangerous" and self._can_restore is not None:
            is_lost = not await self._can_restore(Path(case.call.workspace))
            jailed_call = msgspec.structs.replace(jailed_call, is_lost=is_lost)
        return msgspec.structs.replace(case, jailed=jailed_call)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Report to the service how a call ended that it had decided on. Other calls are ignored."""
        if self._service is None:
            return
        try:
            confirm = _make_confirm_case(self._service, self._case(call))
        except _ANALYSIS_FAILS:
            return  # a call that can't be judged was never allowed
        if confirm is not None:
            await self._service.confirmer.report(confirm, output, emit)

    def _case(self, call: GateCall) -> GateCase:
        scope = RiskScope(
            _workspace(call, self._sealed),
            self._user_home,
            self._whet_home,
            own_ports=self._own_ports,
            downloads=self._downloads.of(self.root_of(call.session_id)),
        )
        return GateCase(call, describe(call, scope, self._analyse), scope)

    async def _judge(self, case: GateCase) -> Ruling:
        high_risk = self._service and self._service.high_risk
        return await self._typed.judge(case, self._case, self._judge_text, high_risk)

    async def _judge_text(self, case: GateCase) -> Ruling:
        asks = case.call.asks
        if self._sealed is not None and (why := _refusal(case, self._sealed)):
            return Ruling("deny", why)
        if rule := _find_path_rule(case, self._settings.deny):
            return Ruling("deny", f"the rule deny: {rule} forbids it")
        if not asks and (rule := _find_path_rule(case, self._settings.ask)):
            asks = f"the rule ask: {rule} wants a person's decision"
        first = self.plans.denial(case.call, case.action) or self._policy.judge(case.action, (), asks)
        if first.verdict == "ask" and not asks:
            first = self._policy.judge(case.action, await self._find_grants(case.call), digest=case.digest)
        first = self._contents.recheck(self.root_of(case.call.session_id), case, self._policy, first)
        return first if self.mode == "deny" else _judge_jailed(case, first)

    async def _find_grants(self, call: GateCall) -> list[PolicyGrant]:
        """Return the grants that apply to a call: stored ones and those of its session."""
        rows = [row for row in await self._store.all() if row.workspace in ("", call.workspace)]
        stored = [PolicyGrant(row.tool, row.pattern) for row in rows]
        return [*stored, *self.session_grants.list_grants(self.root_of(call.session_id))]

    async def _ask(self, case: GateCase, ruling: Ruling, emit: Emit) -> Decision:
        """Ask until the person decides. An edit is no answer: the edited call is asked about. If it can't
        run, report that and ask again about the call that was shown."""
        written = case.call.arguments
        can_restore = self._can_restore is None or await self._can_restore(Path(case.call.workspace))
        while True:
            changes = await self._held.preview(case, emit)
            is_edited = case.call.arguments != written
            request = build_request(case, ruling, changes, is_recorded=can_restore, is_edited=is_edited)
            details = (request.tool, request.subject, request.reasons, list_edits(changes))
            emit(ApprovalAsked(request.call_id, *details))
            shown_content = await read_content(case)
            response = await self._person.approve(request)
            reply = Reply(response) if isinstance(response, str) else response
            if reply is None:
                why = explain_absence(self.mode, case, request.reasons)
                return _emit_decision(case.call, Decision("deny", "nobody", why, NOBODY_NOTICE), emit)
            if reply.answer not in ("once", "session", "always"):
                return _emit_decision(case.call, deny_for_person(reply.words), emit)
            if why := explain_change(shown_content, await read_content(case)):
                return _emit_decision(case.call, Decision("deny", "rule", why), emit)
            if reply.arguments is None or reply.arguments == case.call.arguments:
                await self._store_grant(case, reply, request.scopes, emit)
                self._record_run(case, with_missing=True)
                allowed = Decision("allow", "person", digest=request.digest, changes=changes)
                if is_edited:
                    allowed = msgspec.structs.replace(allowed, arguments=case.call.arguments)
                return _emit_decision(case.call, allowed, emit)
            edited = await self._judge_edited(case, reply.arguments, emit)
            if isinstance(edited, Decision):
                return _emit_decision(case.call, edited, emit)
            case, ruling = edited or (case, ruling)

    async def _judge_edited(
        self, case: GateCase, arguments: dict[str, object], emit: Emit
    ) -> tuple[GateCase, Ruling] | Decision | None:
        """Return a call that the person edited with why it is asked about, or the service's decision on it.

        It is asked about even if nothing else requires a question: the person has not seen yet what it would
        write or reach. Returns None if it can't run or is denied; the person has been notified.
        """
        call = msgspec.structs.replace(case.call, arguments=arguments)
        try:
            await preview_changes(call)
            edited = await self._add_jail_needs(self._case(call), emit)
            ruling = await self._judge(edited)
            confirm = _make_confirm_case(self._service, edited)
        except (ToolError, *_ANALYSIS_FAILS) as error:
            emit(Notice(f"What you changed can't run: {getattr(error, 'message', error)}"))
            return None
        if ruling.verdict == "deny":
            emit(Notice(f"What you changed is denied by policy: {ruling.reason}"))
            return None
        if confirm is not None and self._service is not None:
            await self._held.stop(edited, emit)
            return msgspec.structs.replace(
                await _ask_service(self._service, confirm, emit), arguments=arguments
            )
        return edited, Ruling("ask") if ruling.verdict == "allow" else ruling

    async def _store_grant(
        self, case: GateCase, reply: Reply, scopes: Sequence[GrantScope], emit: Emit
    ) -> None:
        """Store a grant for the chosen duration and the displayed scope.

        A dangerous action is granted for the session at most, and only for exactly the same call.
        """
        if reply.answer == "once":
            return
        root, workspace = self.root_of(case.call.session_id), case.call.workspace
        self._contents.accept(case.call.tool, root, lasting=reply.answer == "always")
        scope = scopes[reply.scope if 0 <= reply.scope < len(scopes) else 0]
        if reply.answer == "always" and scope.always:
            try:
                for tool, pattern in scope.rules:
                    await self._store.add(tool, pattern, workspace)
                return
            except StoreError as error:
                emit(Notice(f"The permission holds for this session only: {error.message}", must_show=True))
        grants = (PolicyGrant(tool, pattern, workspace, scope.call) for tool, pattern in scope.rules)
        self.session_grants.add(root, grants)

    def root_of(self, session_id: str) -> str:
        """Return the session that a person talks to: the topmost ancestor of this one."""
        visited = {session_id}
        while (parent := self._parents.get(session_id)) is not None and parent not in visited:
            visited.add(parent)
            session_id = parent
        return session_id


def _emit_decision(call: GateCall, decision: Decision, emit: Emit) -> Decision:
    emit(ApprovalDecided(call.call.id, decision.verdict, decision.decided_by, decision.reason))
    return decision


def _analyse_shell(command: str, cwd: str, scope: RiskScope, stdin: str) -> ShellRisk:
    """Load the shell's parser at the first command: it takes 50 ms of CPU, which a session without commands
    should not spend before its first request."""
    from whet.approval.shell_risk import analyse  # noqa: PLC0415  50 ms of CPU: tree-sitter

    return analyse(command, cwd, scope, stdin)


def _workspace(call: GateCall, sealed: Sealed | None) -> str:
    """Return the real path of the workspace, if the judgement depends on it."""
    return (
        call.workspace
        if sealed is None and not depends_on_location(call.tool)
        else os.path.realpath(call.workspace)
    )


def _refusal(case: GateCase, sealed: Sealed) -> str:
    from whet.approval.sealed import refusal  # noqa: PLC0415 - only where a service is at home

    return refusal(case.call, case.action, case.scope, case.jailed, sealed)


def _judge_jailed(case: GateCase, ruling: Ruling) -> Ruling:
    if case.jailed is None or ruling.verdict == "deny":
        return ruling
    from whet.approval.confined import judge_jailed  # noqa: PLC0415 - only where commands are confined

    return judge_jailed(case, case.jailed, ruling)


def _find_path_rule(case: GateCase, texts: Sequence[str]) -> str:
    """Return the rule for files among these that covers what a call reads or changes, or an empty string."""
    rules = read_path_rules(texts)
    if not rules.rules:
        return ""
    from whet.approval.path_denials import find_path_rule  # noqa: PLC0415 - only if there are such rules

    jailed = case.jailed
    is_jailed = jailed is not None and not any(
        opening.kind == "run" for opening in (*jailed.held, *jailed.wanted)
    )
    return find_path_rule(case.call, case.action, case.scope, rules, is_jailed=is_jailed)


def _make_confirm_case(service: ServiceRoute | None, case: GateCase) -> ConfirmCase | None:
    """Return the request for the confirmation service; None if the call is not high-risk."""
    name = service.high_risk.name_of(case.action) if service else ""
    if not name:
        return None
    reasons = tuple(visible_line(reason) for reason in case.action.reasons)
    return ConfirmCase(name, case.action.subject, reasons, case.call)


async def _ask_service(service: ServiceRoute, confirm: ConfirmCase, emit: Emit) -> Decision:
    """Ask a person through the service to decide on the exact changes, and bind the approval to them."""
    call = confirm.call
    changes = await preview_changes(call)
    decision = await service.confirmer.confirm(msgspec.structs.replace(confirm, changes=changes), emit)
    return msgspec.structs.replace(decision, changes=changes, digest=digest_of(call, changes))
