"""The toolset `terminal`: shell commands and the processes that continue in the background."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import msgspec

from whet.contract.delegation import HELPER, BackgroundHelpers, ProcessAction
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.tools.signature import UNSENT, Toolset, tool_method

if TYPE_CHECKING:
    from whet.sandbox.confinement import Confinement
    from whet.tools.process import Processes

TERMINAL = "terminal"
FindSessions: TypeAlias = Callable[[str, Collection[str]], Awaitable[Collection[str]]]


class ShellLimits(msgspec.Struct, frozen=True):
    """The time limit of a foreground command, the size limit of a result, and secret-like names to pass."""

    timeout_s: float = 120.0
    output_cap_chars: int = 30_000
    pass_variables: Collection[str] = ()


class SharedProcesses:
    """The commands of one program, created with the first one unless given.

    `confine` creates the Confinement that assigns sandboxes; None: commands run unconfined.
    `find_sessions_of_person` returns those of some sessions that are the person's of a session, whose
    background processes it may see and control; None: each session has only its own.
    """

    def __init__(
        self,
        processes: Processes | None = None,
        confine: Callable[[], Confinement] | None = None,
        find_sessions_of_person: FindSessions | None = None,
    ) -> None:
        self.processes = processes
        self.confine = confine
        self.find_sessions_of_person = find_sessions_of_person

    def get(self) -> Processes:
        """Return the commands, creating them if necessary."""
        if self.processes is None:
            from whet.tools.process import Processes

            self.processes = Processes()
        return self.processes

    def close(self) -> None:
        """Stop the running commands."""
        if self.processes is not None:
            self.processes.close()


class ShellTools(Toolset, frozen=True):
    """Tools that run commands. `process` also handles `helpers`; `environment` None is this program's own."""

    toolset: ClassVar[str] = "terminal"
    shared: SharedProcesses
    limits: ShellLimits = ShellLimits()
    environment: Mapping[str, str] | None = None
    helpers: Callable[[], BackgroundHelpers] | None = None

    def configure(self, tool: Tool) -> Tool:
        """Return a tool with the size limit of results, and with the time limit as the argument's default."""
        tool = msgspec.structs.replace(tool, output_cap_chars=self.limits.output_cap_chars)
        if tool.spec.name == TERMINAL:
            argument: dict[str, Any] = tool.spec.parameters["properties"]["timeout_s"]
            limit_s = self.limits.timeout_s
            argument["default"] = int(limit_s) if float(limit_s).is_integer() else limit_s
        return tool

    @tool_method(effects={"execute"}, timeout_s=None)
    async def terminal(  # noqa: PLR0913 - the parameters are the tool's schema
        self,
        ctx: ToolContext,
        command: str,
        workdir: Annotated[str, UNSENT] = "",
        timeout_s: float | None = None,
        stdin: Annotated[str, UNSENT] = "",
        pty: bool = False,
        background: Annotated[bool, "gives an id"] = False,
    ) -> ToolOutput:
        """Run bash in the workspace, each call in a new shell that keeps only cd."""
        from whet.tools.commands import run_command
        from whet.tools.shell import command_spec

        source = os.environ if self.environment is None else self.environment
        spec = command_spec(ctx.workspace, command, workdir, (stdin, pty, background), (self.limits, source))
        limit_s = self.limits.timeout_s if timeout_s is None else timeout_s
        output = await run_command(ctx, self.shared, self.limits, spec, None if background else limit_s)
        if not background or timeout_s is None:
            return output
        note = "[timeout_s does not end it in the background; process with action kill does]"
        return msgspec.structs.replace(output, text=f"{output.text}\n{note}")

    @tool_method(effects={"execute"}, timeout_s=None)
    async def process(  # noqa: PLR0913 - the parameters are the tool's schema
        self,
        ctx: ToolContext,
        action: ProcessAction,
        id: str = "",
        text: str = "",
        newline: bool = True,
        eof: bool = False,
        timeout_s: float = 30,
    ) -> ToolOutput:
        """Background processes, helpers: poll gives new output, wait until exit or timeout_s."""
        from whet.tools.session_processes import open_session_processes
        from whet.tools.shell import Shell

        if self.helpers is not None and id.startswith(HELPER):
            return await self.helpers().act(ctx, id, action, text, timeout_s)
        shell = Shell(await open_session_processes(self.shared, ctx.session_id), self.limits)
        if action == "list":
            lines = await self.helpers().list_lines(ctx) if self.helpers is not None else ()
            return shell.list_processes(lines)
        if action == "write":
            return shell.send(id, text, newline=newline, eof=eof)
        if action == "kill":
            return await shell.kill(id)
        return await shell.read_new_output(id, timeout_s if action == "wait" else None, ctx.output)
