"""The built-in slash commands: one row each, in the order in which /help shows them.

A row names its handler as module:function. The module is imported when the command is first typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.app.conversations.slash import LateHandler, SlashCommand

if TYPE_CHECKING:
    from whet.cli.interactive.commands import ChatControl

_TERMINAL = "it works on the terminal itself"
_OTHERS = "it reaches other sessions than this one"
_MACHINE = "it is about the machine that Whet runs on, not about this conversation"
_FILES = "it writes a file there"

SLASH_COMMANDS: tuple[SlashCommand[ChatControl], ...] = (
    SlashCommand(
        "help",
        "Show this.",
        LateHandler("whet.cli.interactive.commands:show_help"),
        aliases=("h",),
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "new",
        "Start a new session.",
        LateHandler("whet.cli.interactive.commands:start_session"),
        "[title]",
        aliases=(
            "clear",
            "reset",
        ),
        remote=True,
    ),
    SlashCommand(
        "warm",
        "Show how this session was started, or start one warm.",
        LateHandler("whet.cli.interactive.commands:choose_start"),
        "[name|auto]",
        remote=True,
    ),
    SlashCommand(
        "resume",
        "Go on with a cut-off turn, or open a session.",
        LateHandler("whet.cli.interactive.commands:resume_session"),
        "[id]",
        local=_OTHERS,
    ),
    SlashCommand(
        "sessions",
        "List sessions, or find one by title.",
        LateHandler("whet.cli.interactive.commands:list_sessions"),
        "[text]",
        anytime=True,
        local=_OTHERS,
    ),
    SlashCommand(
        "search",
        "Search the messages of all sessions.",
        LateHandler("whet.cli.interactive.own_programs:search_sessions"),
        "WORDS",
        local=_OTHERS,
    ),
    SlashCommand(
        "model",
        "Show, list or switch the model.",
        LateHandler("whet.cli.interactive.commands:show_model"),
        "[name|list|default]",
        remote=True,
    ),
    SlashCommand(
        "account",
        "Show or switch the provider's account.",
        LateHandler("whet.cli.interactive.commands:show_accounts"),
        "[name|default]",
        local=_MACHINE,
    ),
    SlashCommand(
        "tools",
        "List the tools of this session.",
        LateHandler("whet.cli.interactive.commands:list_tools"),
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "usage",
        "Show what this session has spent.",
        LateHandler("whet.cli.interactive.commands:show_usage"),
        aliases=(
            "cost",
            "status",
        ),
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "context",
        "Show how full the window is, and the engine.",
        LateHandler("whet.cli.interactive.commands:show_context"),
        remote=True,
    ),
    SlashCommand(
        "compress",
        "Make the context smaller, keeping what you name.",
        LateHandler("whet.cli.interactive.commands:compress_context"),
        "[focus]",
        aliases=("compact",),
        remote=True,
    ),
    SlashCommand(
        "good", "Say that the last turn went well.", LateHandler("whet.cli.rate:rate_good"), remote=True
    ),
    SlashCommand(
        "bad", "Say that the last turn went badly.", LateHandler("whet.cli.rate:rate_bad"), remote=True
    ),
    SlashCommand(
        "refine",
        "Review this conversation for what is worth keeping.",
        LateHandler("whet.cli.interactive.commands:request_review"),
        "[focus]",
        remote=True,
    ),
    SlashCommand(
        "memory",
        "Show what is remembered.",
        LateHandler("whet.cli.interactive.learning_commands:show_memory"),
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "skills",
        "List skills; each is a command: /its-name.",
        LateHandler("whet.cli.interactive.learning_commands:list_skills"),
        "[words]",
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "inbox",
        "See what waits or was refused; accept or reject it.",
        LateHandler("whet.cli.interactive.learning_commands:handle_inbox"),
        "[all|accept|reject NUMBER]",
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "learned",
        "Show what was learned today, or one change whole.",
        LateHandler("whet.cli.interactive.learned:show_learned"),
        "[today|all|[undo] NUMBER]",
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "retry",
        "Take the last turn back and ask again.",
        LateHandler("whet.cli.interactive.commands:retry_turn"),
        remote=True,
    ),
    SlashCommand(
        "undo",
        "Take the last turn back, its files aside.",
        LateHandler("whet.cli.interactive.commands:undo_turn"),
        remote=True,
    ),
    SlashCommand(
        "rewind",
        "List the points, or go back to one: files and conversation.",
        LateHandler("whet.cli.interactive.rewind_commands:rewind_session"),
        "[turn[.step]|undo]",
        remote=True,
    ),
    SlashCommand(
        "diff",
        "Show what a turn changed in the files.",
        LateHandler("whet.cli.interactive.rewind_commands:show_diff"),
        "[turn]",
        remote=True,
    ),
    SlashCommand(
        "goal",
        "Work on something until a check proves that it is done.",
        LateHandler("whet.cli.interactive.goal_command:handle_goal"),
        "TEXT [--verify CMD]",
        local="it runs beside the chat at the terminal",
    ),
    SlashCommand(
        "plan",
        "Have it only read and plan; show, change, approve.",
        LateHandler("whet.cli.interactive.commands:edit_plan"),
        "[TEXT|steps|go|off]",
        remote=True,
    ),
    SlashCommand(
        "fork",
        "Go on in a copy of this session, as it was after a turn.",
        LateHandler("whet.cli.interactive.forks:fork_session"),
        "[turn]",
        local=_OTHERS,
    ),
    SlashCommand(
        "tree",
        "See the forks of this session, and go to one.",
        LateHandler("whet.cli.interactive.forks:choose_fork"),
        local=_OTHERS,
    ),
    SlashCommand(
        "title",
        "Show or set the title.",
        LateHandler("whet.cli.interactive.commands:set_title"),
        "[text]",
        aliases=("rename",),
        anytime=True,
        remote=True,
    ),
    SlashCommand(
        "private",
        "Keep this session out of search and learning.",
        LateHandler("whet.cli.interactive.commands:set_private"),
        "[on|off]",
        remote=True,
    ),
    SlashCommand(
        "export",
        "Write this session to a file (.md, .html, .jsonl).",
        LateHandler("whet.cli.interactive.commands:export_session"),
        "[file]",
        local=_FILES,
    ),
    SlashCommand(
        "approvals",
        "Show or set what runs without a question.",
        LateHandler("whet.cli.interactive.commands:set_approvals"),
        "[ask|plan|auto|deny|revoke N]",
        aliases=(
            "mode",
            "permissions",
        ),
        anytime=True,
        local=_MACHINE,
    ),
    SlashCommand(
        "calls",
        "List this session's calls, or show one whole.",
        LateHandler("whet.cli.interactive.full_calls:show_calls"),
        "[N]",
        anytime=True,
        local="/receipt shows what they did",
    ),
    SlashCommand(
        "receipt",
        "Show what a turn's calls did, whole.",
        LateHandler("whet.cli.interactive.full_calls:show_receipt"),
        "[TURN]",
        remote=True,
    ),
    SlashCommand(
        "jobs",
        "See and stop background processes and helpers.",
        LateHandler("whet.cli.interactive.jobs:handle_jobs"),
        "[ID|stop ID]",
        aliases=(
            "helpers",
            "tasks",
        ),
        anytime=True,
        local=_MACHINE,
    ),
    SlashCommand(
        "init",
        "Write AGENTS.md from what the repository shows.",
        LateHandler("whet.cli.interactive.own_programs:write_instructions"),
        "[wishes]",
        local=_FILES,
    ),
    SlashCommand(
        "config",
        "Show or set a setting.",
        LateHandler("whet.cli.interactive.own_programs:run_config"),
        "[KEY [VALUE]]",
        local=_MACHINE,
    ),
    SlashCommand(
        "theme",
        "Choose the colours.",
        LateHandler("whet.cli.interactive.own_programs:choose_theme"),
        "[name]",
        local=_TERMINAL,
    ),
    SlashCommand(
        "mcp",
        "See, add and test MCP servers.",
        LateHandler("whet.cli.interactive.own_programs:run_mcp"),
        "[list|add|test ...]",
        local=_MACHINE,
    ),
    SlashCommand(
        "hooks",
        "See the hooks, and accept the repository's.",
        LateHandler("whet.cli.interactive.own_programs:run_hooks"),
        "[accept|refuse]",
        local=_MACHINE,
    ),
    SlashCommand(
        "plugins",
        "See, install and enable plugins.",
        LateHandler("whet.cli.interactive.own_programs:run_plugins"),
        "[install|enable|disable ...]",
        local=_MACHINE,
    ),
    SlashCommand(
        "cron",
        "See, add and pause schedules.",
        LateHandler("whet.cli.interactive.own_programs:run_cron"),
        "[add|pause|resume|rm ...]",
        local=_MACHINE,
    ),
    SlashCommand(
        "sandbox",
        "See what commands may reach, and try one.",
        LateHandler("whet.cli.interactive.own_programs:run_sandbox"),
        "[status|explain|try ...]",
        local=_MACHINE,
    ),
    SlashCommand(
        "doctor",
        "Check that everything works.",
        LateHandler("whet.cli.interactive.own_programs:run_doctor"),
        local=_MACHINE,
    ),
    SlashCommand(
        "login",
        "Get a key by a login in the browser.",
        LateHandler("whet.cli.interactive.own_programs:run_login"),
        local=_MACHINE,
    ),
    SlashCommand(
        "agents",
        "See every session of this machine, and its state.",
        LateHandler("whet.cli.interactive.own_programs:run_agents"),
        "[show|stop ID]",
        local=_OTHERS,
    ),
    SlashCommand(
        "copy",
        "Copy the last answer to the clipboard.",
        LateHandler("whet.cli.interactive.commands:copy_answer"),
        anytime=True,
        local=_TERMINAL,
    ),
    SlashCommand(
        "quit",
        "End the chat.",
        LateHandler("whet.cli.interactive.commands:leave_chat"),
        aliases=(
            "exit",
            "q",
        ),
        anytime=True,
        local=_TERMINAL,
    ),
)


def is_built_in(name: str) -> bool:
    """Return whether a built-in command has this name or alias."""
    return any(name == command.name or name in command.aliases for command in SLASH_COMMANDS)
