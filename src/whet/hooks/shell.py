"""Run the owner's shell hooks, and a repository's accepted ones, around a session's calls and turns.

PreToolUse runs before the gate and can only deny: a hook's approval does not allow a call. If a hook before
an action (PreToolUse, UserPromptSubmit) fails, the action is blocked. The hooks of one event run at the same
time.
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
from whet.hooks.repository import RepositoryHook, has_acceptance, is_accepted, read_repository_hooks
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
    """The hooks of one session. `is_accepted` returns whether the repository's hooks are still those that the
    owner accepted."""

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
        """Return the tool hooks that apply to none of these tools, except those for tools of MCP servers."""
        return [
            name
            for name, hook in self._hooks.items()
            if hook.event in ("PreToolUse", "PostToolUse") and "mcp__" not in hook.tools
            if not any(applies_to(hook.tools, tool) for tool in names)
        ]

    async def run(self, event: HookEvent, tool: str = "", **facts: Any) -> HookVerdict:
        """Run the hooks of an event at the same time, and join their results in the order of the settings.

        One hook that blocks is enough to block the action. Before an action, so is one that fails.
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
        failures = [verdict.failure for verdict in verdicts if verdict.failure]
        reasons = [verdict.block_reason or verdict.failure for verdict in verdicts]
        if event not in _GUARDS:
            reasons = [verdict.block_reason for verdict in verdicts]
        if any(reasons):
            return HookVerdict(block_reason="\n".join(dict.fromkeys(filter(None, reasons))))
        output = "\n".join(verdict.output for verdict in verdicts if verdict.output)
        return HookVerdict(output=output, failure="; ".join(dict.fromkeys(failures)))

    def has(self, event: HookEvent) -> bool:
        """Return whether there is a hook for an event."""
        return any(hook.event == event for hook in self._hooks.values())

    def wrap_tool(self, tool: Tool) -> Tool:
        """Return the tool with the PostToolUse hooks after each call. Their remarks are added to its
        result."""
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
        if verdict.block_reason:
            return f"[A hook objects: {verdict.block_reason}]"
        lines = [
            f"[A hook says: {verdict.output}]" if verdict.output else "",
            verdict.failure and f"[{verdict.failure}]",
        ]
        return "\n".join(filter(None, lines))

    async def _run_together(
        self, hooks: Mapping[str, HookSettings], facts: Mapping[str, Any]
    ) -> list[HookVerdict]:
        """Run hooks on their own threads, because a slow hook would occupy a shared one. A cancel waits until
        all have ended."""
        pool = ThreadPoolExecutor(min(len(hooks), _MAX_AT_ONCE), thread_name_prefix="hook")
        try:
            loop = asyncio.get_running_loop()
            jails = await loop.run_in_executor(pool, self._prepare, hooks)
            runs = [self._run_hook(name, hook, facts, jails[name], pool) for name, hook in hooks.items()]
            # Without return_exceptions, a cancel would wait only for the first hook that ends.
            results = await asyncio.gather(*runs, return_exceptions=True)
        finally:
            pool.shutdown(wait=False)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, HookVerdict)]

    def _prepare(self, hooks: Mapping[str, HookSettings]) -> dict[str, MakeJail | None]:
        """Return the function that makes each hook's sandbox, or None for a repository's hook that may not
        run. Hooks share sandboxes, because making one costs as much as starting a hook."""
        has_foreign = any(isinstance(hook, RepositoryHook) for hook in hooks.values())
        may_run_foreign = has_foreign and self._is_accepted()
        own = cache(self._jail)
        foreign = {writes: cache(partial(self._foreign_jail, writes)) for writes in (False, True)}
        jails: dict[str, MakeJail | None] = {}
        for name, hook in hooks.items():
            make_jail: MakeJail | None = own
            if isinstance(hook, RepositoryHook):
                make_jail = foreign[hook.writes] if may_run_foreign else None
            if make_jail is not None:
                with suppress(WhetError, OSError):  # the hook's result reports it
                    make_jail()
            jails[name] = make_jail
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
            return HookVerdict(failure=_CHANGED)
        return await run_hook(name, hook, facts, self._workspace, make_jail, pool)

    def _jail(self) -> Jail | None:
        return self._confinement.get().jail(self._workspace, self._session_id)

    def _foreign_jail(self, writes: bool) -> Jail:
        """Return the sandbox for a repository's hook. Raises ToolDenied if commands are not confined here."""
        jail = self._confinement.get().jail(self._workspace, self._session_id, read_only=not writes)
        if jail is None:
            raise ToolDenied("a repository's hook runs in the sandbox only, and there is none here")
        return jail


class ShellHookGate:
    """Denies calls that a PreToolUse hook blocks; other calls are decided by `gate`."""

    def __init__(self, gate: Gate, hooks: ShellHooks) -> None:
        self._gate = gate
        self._hooks = hooks

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide, as the Gate contract requires."""
        verdict = await self._hooks.run("PreToolUse", call.tool.name, tool_input=call.arguments)
        if verdict.block_reason:
            reason = f"A hook refused this, so nothing was run: {verdict.block_reason}"
            emit(ApprovalDecided(call.call.id, "deny", "rule", reason))
            return Decision("deny", "rule", reason)
        return await self._gate.decide(call, emit)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self._gate.report(call, output, emit)


class ShellHookObserver(TurnObserver):
    """Runs the UserPromptSubmit hooks before a message is stored, and the Stop hooks after a turn."""

    def __init__(self, hooks: ShellHooks) -> None:
        self._hooks = hooks
        self._failures: list[str] = []

    async def before(self, session: Session, message: Message) -> Message:
        """Add the hooks' output to the message. Raises WhetError if a hook refuses it."""
        if not self._hooks.has("UserPromptSubmit"):
            return message
        verdict = await self._hooks.run("UserPromptSubmit", prompt=message.text)
        if verdict.block_reason:
            raise WhetError(
                f"a hook refused this message: {verdict.block_reason}", hint="whet hooks lists them"
            )
        self._failures += filter(None, [verdict.failure])
        note = "\n\n".join(filter(None, (message.note, verdict.output)))
        return msgspec.structs.replace(message, note=note) if verdict.output else message

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Notify the hooks that the turn has ended."""
        if self._hooks.has("Stop"):
            verdict = await self._hooks.run("Stop", reason=end.reason, text=clip(end.text, _RESPONSE_CHARS))
            self._failures += filter(None, [verdict.failure])

    def take_notices(self) -> Sequence[str]:
        """Return the hooks' failures since the last call."""
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
    """Return the owner's `hooks` and a repository's accepted ones, or None if there are none. `note` receives
    a line about hooks that don't run."""
    hooks = dict(hooks)
    try:
        repository = read_repository_hooks(workspace)
    except ConfigError as error:
        note(error.message)
        repository = None
    if repository is not None and repository.hooks:
        if not has_acceptance(home, repository):
            note(_NOT_ACCEPTED)
        else:  # if they have changed since, they fail, which blocks the actions that they guard
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
    """Return whether a hook applies to a tool. A hook whose expression is invalid or too slow applies to all
    tools, because a guard that runs too often is safer than one that is skipped."""
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
