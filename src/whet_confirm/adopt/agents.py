"""The agents that `whet confirm adopt` supports, with the location and format of each one's setting.

Each was tested with the program itself, except Cursor's, which follows its documentation. Agents run a tool
if their hook fails or prints nothing, so after any failure the setting's command prints a reason and exits
with 2.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

_MARGIN_S = 60  # the agent waits this much longer than the hook, so that the hook ends first


class HookCommand(msgspec.Struct, frozen=True):
    """The command that an agent runs before a tool: a shell line, and how long it may take."""

    agent: str
    program: tuple[str, ...]
    environ: dict[str, str] = {}
    patterns: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    timeout_s: int = 300
    keep_s: int = 0

    @property
    def limit_s(self) -> int:
        """The time limit that the agent must give the command."""
        return self.timeout_s + _MARGIN_S

    @property
    def line(self) -> str:
        """The shell line. If the program is missing or crashes, it exits with 2, and the tool is blocked."""
        words = [*self.program, "confirm", "hook", "--agent", self.agent, "--timeout", str(self.timeout_s)]
        if self.keep_s:
            words += ["--keep", str(self.keep_s)]
        for pattern in self.patterns:
            words += ["--match", pattern]
        for name in self.free:
            words += ["--except", name]
        names = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(self.environ.items()))
        return f"{names}{shlex.join(words)} || {{ echo 'whet confirm hook failed' >&2; exit 2; }}"


class Switch(msgspec.Struct, frozen=True):
    """A setting of the agent that turns hooks off: its file (beside the hook's), keys, and value."""

    file: str
    keys: tuple[str, ...]
    value: object


class HookedAgent(msgspec.Struct, frozen=True):
    """One agent. `folder_name` is in the home folder, unless the variable `folder_variable` names a folder.

    `keys` lead to the list of hooks in a JSON file; an empty tuple stands for a file that is Whet's alone.
    """

    name: str
    title: str
    folder_name: str
    file: str
    make_content: Callable[[HookCommand], Any]
    folder_variable: str = ""
    keys: tuple[str, ...] = ()
    has_comments: bool = False
    """Whether the agent reads comments in its JSON file."""
    skeleton: dict[str, Any] = {}
    free: tuple[str, ...] = ()
    """Tools that the hook itself lets pass, because this agent's setting can't exclude them."""
    switches: tuple[Switch, ...] = ()
    trust_file: str = ""
    """The file in which the agent records the hooks that its user trusts. `hint` says how to trust one."""
    hint: str = ""

    def path(self, environ: Mapping[str, str], user_home: Path) -> Path:
        """Return the file of the setting."""
        named = environ.get(self.folder_variable) if self.folder_variable else ""
        return (Path(named) if named else user_home / self.folder_name) / self.file


def _claude_entry(unit: int, matcher: str) -> Callable[[HookCommand], Any]:
    """Return a function that creates an entry in Claude Code's format. `unit` is 1000 for milliseconds."""

    def make(command: HookCommand) -> Any:
        hook = {"type": "command", "command": command.line, "timeout": command.limit_s * unit}
        return {"matcher": matcher, "hooks": [hook]}

    return make


def _all_but(names: Sequence[str]) -> str:
    """Return a JavaScript pattern that matches all tools except these."""
    return f"^(?!({'|'.join(names)})$)"


def _cursor_entry(command: HookCommand) -> Any:
    return {"command": command.line, "timeout": command.limit_s, "failClosed": True}


def _copilot_file(command: HookCommand) -> Any:
    hook = {"type": "command", "bash": command.line, "timeoutSec": command.limit_s}
    return json.dumps({"version": 1, "hooks": {"preToolUse": [hook]}}, indent=2) + "\n"


_ASK = """\
import { spawn } from "node:child_process"

const COMMAND = %s
const FREE = new Set(%s)

// Return why the tool may not run, or nothing if it may.
function ask(event) {
  if (FREE.has(event.tool_name)) return Promise.resolve()
  return new Promise((resolve) => {
    const hook = spawn("sh", ["-c", COMMAND], { stdio: ["pipe", "pipe", "ignore"] })
    let text = ""
    hook.stdout.on("data", (data) => { text += data })
    hook.stdin.on("error", () => {})
    hook.on("error", (error) => resolve(`could not ask: ${error.message}`))
    hook.on("close", () => {
      let answer = {}
      try { answer = JSON.parse(text).hookSpecificOutput } catch {}
      const isAllowed = answer?.permissionDecision === "allow"
      resolve(isAllowed ? undefined : answer?.permissionDecisionReason ?? "whet confirm hook failed")
    })
    hook.stdin.end(JSON.stringify({ hook_event_name: "PreToolUse", ...event }))
  })
}
"""
_OPENCODE = """
export const WhetConfirm = async ({ directory }) => ({
  "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
    const refusal = await ask({
      tool_name: tool, tool_input: args, session_id: sessionID, tool_use_id: callID, cwd: directory,
    })
    if (refusal) throw new Error(refusal)
  },
})
"""
_PI = """
export default function (pi) {
  pi.on("tool_call", async (event, context) => {
    const reason = await ask({
      tool_name: event.toolName, tool_input: event.input, tool_use_id: event.toolCallId, cwd: context.cwd,
    })
    if (reason) return { block: true, reason }
  })
}
"""


def _script(end: str, free: Sequence[str]) -> Callable[[HookCommand], Any]:
    def make(command: HookCommand) -> Any:
        head = f"// `whet confirm adopt {command.agent}` wrote this file; with --remove it deletes it.\n"
        return head + _ASK % (json.dumps(command.line), json.dumps(list(free))) + end

    return make


# The tools that only read, plan or ask the person in front of the agent. Any other tool waits.
_CLAUDE_FREE = (
    "Read", "Glob", "Grep", "LS", "NotebookRead", "TodoWrite", "Task(Create|Get|List|Output|Update)", "Task",
    "Agent", "BashOutput", "ToolSearch", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode",
)  # fmt: skip
_GEMINI_FREE = (
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
    "write_todos", "todo_write", "ask_user", "ask_user_question", "enter_plan_mode", "exit_plan_mode",
)  # fmt: skip
_OPENCODE_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "question", "task")
_COPILOT_FREE = ("view", "glob", "grep", "rg", "report_intent", "ask_user", "update_todo")
_PI_FREE = ("read", "grep", "find", "ls")

AGENTS = {
    agent.name: agent
    for agent in (
        HookedAgent(
            "claude-code", "Claude Code", ".claude", "settings.json",
            _claude_entry(1, _all_but(_CLAUDE_FREE)), "CLAUDE_CONFIG_DIR", ("hooks", "PreToolUse"),
            switches=(Switch("settings.json", ("disableAllHooks",), True),),
        ),
        HookedAgent(
            "codex", "Codex", ".codex", "hooks.json", _claude_entry(1, ".*"), "CODEX_HOME",
            ("hooks", "PreToolUse"),
            switches=(
                Switch("config.toml", ("features", "hooks"), False),
                Switch("config.toml", ("features", "codex_hooks"), False),
            ),
            trust_file="config.toml",
            hint="start codex, type /hooks, and trust it",
        ),
        HookedAgent(
            "gemini", "Gemini CLI", ".gemini", "settings.json", _claude_entry(1000, _all_but(_GEMINI_FREE)),
            keys=("hooks", "BeforeTool"), has_comments=True,
            switches=(Switch("settings.json", ("hooksConfig", "enabled"), False),),
        ),
        HookedAgent(
            "qwen-code", "Qwen Code", ".qwen", "settings.json", _claude_entry(1000, _all_but(_GEMINI_FREE)),
            keys=("hooks", "PreToolUse"), has_comments=True,
            switches=(Switch("settings.json", ("disableAllHooks",), True),),
        ),
        HookedAgent(
            "copilot", "Copilot CLI", ".copilot", "hooks/whet.json", _copilot_file, "COPILOT_HOME",
            free=_COPILOT_FREE,
        ),
        HookedAgent(
            "cursor", "Cursor", ".cursor", "hooks.json", _cursor_entry, keys=("hooks", "preToolUse"),
            skeleton={"version": 1}, free=("Read", "Grep", "Task"),
        ),
        HookedAgent(
            "opencode", "opencode", ".config/opencode", "plugins/whet.js", _script(_OPENCODE, _OPENCODE_FREE),
            "OPENCODE_CONFIG_DIR",
        ),
        HookedAgent(
            "pi", "pi", ".pi/agent", "extensions/whet.js", _script(_PI, _PI_FREE), "PI_CODING_AGENT_DIR"
        ),
    )
}  # fmt: skip


def kept_environ() -> dict[str, str]:
    """Return the variables with which the command finds the same service and token as now."""
    names = ("WHET_HOME", "WHET_PROFILE", "WHET_CONFIRM_URL")
    return {name: value for name in names if (value := os.environ.get(name))}
