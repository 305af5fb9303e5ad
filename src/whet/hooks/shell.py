"""Run the owner's shell hooks, and a repository's accepted ones, around a session's calls and turns.

PreToolUse runs before the gate and can only deny: a hook's approval allows nothing. Hooks before an action
(PreToolUse, UserPromptSubmit) fail closed. The hooks of one event run at the same time. This module does not
know how a hook is run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.config.paths import Home
from whet.config.permission_settings import HookEvent, HookSettings
from whet.contract.errors import ConfigError, ToolDenied, ToolError, WhetError
from whet.contract.events import ApprovalDecided, Emit, TurnEnd
from whet.contract.messages import Message
from whet.contract.protocols import Decision, Gate, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip, error_output
from whet.foreign_regex import RegexTooSlow, regex_matches
from whet.hooks.repository import RepositoryHook, is_accepted, read_repository_hooks, was_accepted
from whet.hooks.runs import HookVerdict, MakeJail, run_hook

if TYPE_CHECKING:
    from whet.late import LatePart
    from whet.sandbox.confinement import Confinement
    from whet.sandbox.jail import Jail

_RESPONSE_CHARS = 20_000
_MAX_AT_ONCE = 128
_GUARDS = ("PreToolUse", "UserPromptSubmit")
_CHANGED = (
    "this repository's hooks, or files that they run, changed since you accepted them: `whet hooks accept`"
    " shows them and lets them run, `whet hooks refuse` ends them"
)
_NOT_ACCEPTED = (
    "this repository brings hooks of its own (.whet/hooks.json), which don't run: `whet hooks` shows them,"
    " `whet hooks accept` lets them"
)


class ShellHooks:
    """The hooks of one session. `is_accepted` says whether the repository's are still those that the owner
    accepted."""

    def __init__(
        self,
        hooks: Mapping[str, HookSettings],
        workspace: Path,
        session_id: str,
        confinement: LatePart[Confinement],
        is_accepted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._hooks = hooks
        self._workspace = workspace
        self._session_id = session_id
        self._confinement = confinement
        self._is_accepted = is_accepted

    def find_idle(self, names: Collection[str]) -> list[str]:
        """Return the hooks for tools that are for none of these names, nor for a server's tools."""
        return [
            name
            for name, hook in self._hooks.items()
            if hook.event in ("PreToolUse", "PostToolUse") and "mcp__" not in hook.tools
            if not any(applies_to(hook.tools, tool) for tool in names)
        ]

    async def run(self, event: HookEvent, tool: str = "", **facts: Any) -> HookVerdict:
        """Run the hooks of an event at the same time, and join their results in the order of the settings.

        One hook that blocks is enough, and so is a failed one before an action.
        """
        hooks = {
            name: hook
            for name, hook in self._hooks.items()
            if hook.event == event and applies_to(hook.tools, tool)
        }
        if not hooks:
            return HookVerdict()
        base_facts = {"hook_event_name": event, "session_id": self._session_id, "cwd": str(self._workspace)}
        tool_facts = {"tool_name": tool} if tool else {}
        verdicts = await self._run_together(hooks, {**base_facts, **tool_facts, **facts})
        failures = [verdict.trouble for verdict in verdicts if verdict.trouble]
        reasons = [
            reason
            for verdict in verdicts
            if (reason := verdict.blocked or (verdict.trouble if event in _GUARDS else ""))
        ]
        if reasons:
            return HookVerdict(blocked="\n".join(dict.fromkeys(reasons)))
        output = "\n".join(verdict.output for verdict in verdicts if verdict.output)
        return HookVerdict(output=output, trouble="; ".join(dict.fromkeys(failures)))

    def has(self, event: HookEvent) -> bool:
        """Return whether there is a hook for an event."""
        return any(hook.event == event for hook in self._hooks.values())

    def wrap_tool(self, tool: Tool) -> Tool:
        """Return the tool with the PostToolUse hooks after each call; the model reads their objections."""
        if not any(
            hook.event == "PostToolUse" and applies_to(hook.tools, tool.name) for hook in self._hooks.values()
        ):
            return tool

        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            try:
                output = await tool.run(context, arguments)
            except ToolError as error:
                output = error_output(error)
            remark = await self._run_after_tool(tool.name, arguments, output.text)
            return msgspec.structs.replace(output, text=f"{output.text}\n\n{remark}") if remark else output

        limit_s = tool.timeout_s and tool.timeout_s + sum(hook.timeout_s for hook in self._hooks.values())
        return msgspec.structs.replace(tool, run=run, timeout_s=limit_s)

    async def _run_after_tool(self, name: str, arguments: dict[str, Any], text: str) -> str:
        response = clip(text, _RESPONSE_CHARS)
        verdict = await self.run("PostToolUse", name, tool_input=arguments, tool_response=response)
        if verdict.blocked:
            return f"[A hook objects: {verdict.blocked}]"
        lines = [
            f"[A hook says: {verdict.output}]" if verdict.output else "",
            verdict.trouble and f"[{verdict.trouble}]",
        ]
        return "\n".join(filter(None, lines))

    async def _run_together(
        self, hooks: Mapping[str, HookSettings], facts: Mapping[str, Any]
    ) -> list[HookVerdict]:
        """Run hooks on threads of their own, because a slow one must not hold a thread that others need. A
        cancel waits until all have ended."""
        pool = ThreadPoolExecutor(min(len(hooks), _MAX_AT_ONCE), thread_name_prefix="hook")
        try:
            loop = asyncio.get_running_loop()
            jails = await loop.run_in_executor(pool, self._prepare, hooks)
            runs = [self._run_hook(name, hook, facts, jails[name], pool) for name, hook in hooks.items()]
            # Without return_exceptions, a cancel would wait for the first one that ends, not for all.
            results = await asyncio.gather(*runs, return_exceptions=True)
        finally:
            pool.shutdown(wait=False)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, HookVerdict)]

    def _prepare(self, hooks: Mapping[str, HookSettings]) -> dict[str, MakeJail | None]:
        """Return how each hook gets its sandbox, None for one of the repository that may not run. Choosing a
        sandbox costs as much as starting a hook in it, so it is chosen once for all."""
        accepted = not any(isinstance(hook, RepositoryHook) for hook in hooks.values()) or self._is_accepted()
        own = cache(self._jail)
        foreign = {writes: cache(partial(self._foreign_jail, writes)) for writes in (False, True)}
        jails: dict[str, MakeJail | None] = {}
        for name, hook in hooks.items():
            jails[name] = make_jail = own
            if isinstance(hook, RepositoryHook):
                jails[name] = make_jail = foreign[hook.writes] if accepted else None
            with suppress(WhetError, OSError):  # the hook's result says so
                _ = make_jail and make_jail()
        return jails

    async def _run_hook(
        self,
        name: str,
        hook: HookSettings,
        facts: Mapping[str, Any],
        make_jail: MakeJail | None,
        pool: Executor,
    ) -> HookVerdict:
        if make_jail is None:
            return HookVerdict(trouble=_CHANGED)
        return await run_hook(name, hook, facts, self._workspace, make_jail, pool)

    def _jail(self) -> Jail | None:
        return self._confinement.get().jail(self._workspace, self._session_id)

    def _foreign_jail(self, writes: bool) -> Jail:
        """Return the sandbox for a repository's hook. Raises ToolDenied if there is none."""
        jail = self._confinement.get().jail(self._workspace, self._session_id, read_only=not writes)
        if jail is None:
            raise ToolDenied("a repository's hook runs in the sandbox only, and there is none here")
        return jail


class ShellHookGate:
    """Lets PreToolUse hooks refuse a call, then asks `gate`."""

    def __init__(self, gate: Gate, hooks: ShellHooks) -> None:
        self._gate = gate
        self._hooks = hooks

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide, as the Gate contract requires."""
        verdict = await self._hooks.run("PreToolUse", call.tool.name, tool_input=call.arguments)
        if verdict.blocked:
            reason = f"A hook refused this, so nothing was run: {verdict.blocked}"
            emit(ApprovalDecided(call.call.id, "deny", "rule", reason))
            return Decision("deny", "rule", reason)
        return await self._gate.decide(call, emit)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self._gate.report(call, output, emit)


class ShellHookObserver(TurnObserver):
    """Calls UserPromptSubmit before a message is stored, and Stop after a turn."""

    def __init__(self, hooks: ShellHooks) -> None:
        self._hooks = hooks
        self._failures: list[str] = []

    async def before(self, session: Session, message: Message) -> Message:
        """Add the hooks' output to the message. Raises WhetError if a hook refuses it."""
        if not self._hooks.has("UserPromptSubmit"):
            return message
        verdict = await self._hooks.run("UserPromptSubmit", prompt=message.text)
        if verdict.blocked:
            raise WhetError(f"a hook refused this message: {verdict.blocked}", hint="whet hooks lists them")
        self._failures += filter(None, [verdict.trouble])
        note = "\n\n".join(filter(None, (message.note, verdict.output)))
        return msgspec.structs.replace(message, note=note) if verdict.output else message

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Notify the hooks that the turn has ended."""
        if self._hooks.has("Stop"):
            verdict = await self._hooks.run("Stop", reason=end.reason, text=clip(end.text, _RESPONSE_CHARS))
            self._failures += filter(None, [verdict.trouble])

    def take_notices(self) -> Sequence[str]:
        """Return the failures of hooks since the last call."""
        failures, self._failures = self._failures, []
        return failures


def load_session_hooks(
    home: Home,
    hooks: Mapping[str, HookSettings],
    confinement: LatePart[Confinement],
    workspace: Path,
    session_id: str,
    note: Callable[[str], None],
) -> ShellHooks | None:
    """Return a session's hooks, the owner's `hooks` first; None if there are none. `note` receives a line
    about hooks that don't run."""
    hooks = dict(hooks)
    try:
        repository = read_repository_hooks(workspace)
    except ConfigError as error:
        note(error.message)
        repository = None
    if repository is not None and repository.hooks:
        if not was_accepted(home, repository):
            note(_NOT_ACCEPTED)
        else:  # if they changed since, they refuse what they guard
            hooks |= {f"{workspace.name}/{name}": hook for name, hook in repository.hooks.items()}
            if not is_accepted(home, repository):
                note(_CHANGED)
    if not hooks:
        return None
    return ShellHooks(
        hooks,
        workspace,
        session_id,
        confinement,
        lambda: _is_still_accepted(home, workspace),
    )


def _is_still_accepted(home: Home, workspace: Path) -> bool:
    try:
        repository = read_repository_hooks(workspace)
    except ConfigError:
        return False
    return repository is not None and is_accepted(home, repository)


def applies_to(tools: str, name: str) -> bool:
    """Return whether a hook applies to a tool. If its expression can't be decided, it applies to all: a guard
    that runs too often is safer than one that is skipped."""
    if tools in ("", "*", name):
        return True
    try:
        return regex_matches(tools, name, whole=True)
    except (re.error, RegexTooSlow):
        return True


def add_hooks(
    hooks: ShellHooks, gate: Gate, tools: Mapping[str, Tool]
) -> tuple[Gate, dict[str, Tool], Sequence[TurnObserver]]:
    """Return the gate, tools and observers of a session with its hooks added."""
    wrapped_tools = {name: hooks.wrap_tool(tool) for name, tool in tools.items()}
    return ShellHookGate(gate, hooks), wrapped_tools, (ShellHookObserver(hooks),)
