"""The table of built-in slash commands, in the order of /help.

The module of a handler is imported when its command is first typed.
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


def _row(
    usage: str, about: str, handler: str, *, anytime: bool = False, local: str = ""
) -> SlashCommand[ChatControl]:
    """Return a command. `usage` is "name|alias [argument]". `handler` is a function of `commands.py`, or
    module:function for another module in this folder. `local` is the reason if a command works at the
    terminal only, and empty if it also works on chat platforms."""
    names, _, argument = usage.partition(" ")
    name, *aliases = names.split("|")
    module, _, function = handler.rpartition(":")
    run = LateHandler(f"whet.cli.interactive.{module or 'commands'}:{function}")
    return SlashCommand(name, about, run, argument, tuple(aliases), anytime, not local, local)


SLASH_COMMANDS: tuple[SlashCommand[ChatControl], ...] = (
    _row("help|h", "Show this.", "show_help", anytime=True),
    _row("new|clear|reset [title]", "Start a new session.", "start_session"),
    _row("warm [name|auto]", "Show how this session was started, or start one warm.", "show_warm_start"),
    _row("resume [id]", "Go on with a cut-off turn, or open a session.", "resume_session", local=_OTHERS),
    _row(
        "sessions [text]",
        "List sessions, or find one by title.",
        "list_sessions",
        local=_OTHERS,
        anytime=True,
    ),
    _row(
        "search WORDS", "Search the messages of all sessions.", "own_programs:search_sessions", local=_OTHERS
    ),
    _row("model [name|list|default]", "Show, list or switch the model.", "show_model"),
    _row("account [name|default]", "Show or switch the provider's account.", "show_accounts", local=_MACHINE),
    _row("tools", "List the tools of this session.", "list_tools", anytime=True),
    _row("usage|cost|status", "Show what this session has spent.", "show_usage", anytime=True),
    _row("context", "Show how full the window is, and the engine.", "show_context"),
    _row("compress|compact [focus]", "Make the context smaller, keeping what you name.", "compress_context"),
    SlashCommand(
        "good", "Say that the last turn went well.", LateHandler("whet.cli.rate:rate_good"), remote=True
    ),
    SlashCommand(
        "bad", "Say that the last turn went badly.", LateHandler("whet.cli.rate:rate_bad"), remote=True
    ),
    _row("refine [focus]", "Review this conversation for what is worth keeping.", "request_review"),
    _row("memory", "Show what is remembered.", "learning_commands:show_memory", anytime=True),
    _row(
        "skills [words]",
        "List skills; each is a command: /its-name.",
        "learning_commands:list_skills",
        anytime=True,
    ),
    _row(
        "inbox [all|accept|reject NUMBER]",
        "See what waits or was refused; accept or reject it.",
        "learning_commands:handle_inbox",
        anytime=True,
    ),
    _row(
        "learned [today|all|[undo] NUMBER]",
        "Show what was learned today, or one change whole.",
        "learned:show_learned",
        anytime=True,
    ),
    _row("retry", "Take the last turn back and ask again.", "retry_turn"),
    _row("undo", "Take the last turn back, its files aside.", "undo_turn"),
    _row(
        "rewind [turn[.step]|undo]",
        "List the points, or go back to one: files and conversation.",
        "rewind_commands:rewind_session",
    ),
    _row("diff [turn]", "Show what a turn changed in the files.", "rewind_commands:show_diff"),
    _row(
        "goal TEXT [--verify CMD]",
        "Work on something until a check proves that it is done.",
        "goal_command:handle_goal",
        local="it runs beside the chat at the terminal",
    ),
    _row("plan [TEXT|steps|go|off]", "Have it only read and plan; show, change, approve.", "edit_plan"),
    _row(
        "fork [turn]",
        "Go on in a copy of this session, as it was after a turn.",
        "forks:fork_session",
        local=_OTHERS,
    ),
    _row("tree", "See the forks of this session, and go to one.", "forks:choose_fork", local=_OTHERS),
    _row("title|rename [text]", "Show or set the title.", "set_title", anytime=True),
    _row("private [on|off]", "Keep this session out of search and learning.", "set_private"),
    _row(
        "export [file]", "Write this session to a file (.md, .html, .jsonl).", "export_session", local=_FILES
    ),
    _row(
        "approvals|mode|permissions [ask|plan|auto|deny|revoke N]",
        "Show or set what runs without a question.",
        "set_approvals",
        local=_MACHINE,
        anytime=True,
    ),
    _row(
        "calls [N]",
        "List this session's calls, or show one whole.",
        "full_calls:show_calls",
        local="/receipt shows what they did",
        anytime=True,
    ),
    _row("receipt [TURN]", "Show what a turn's calls did, whole.", "full_calls:show_receipt"),
    _row(
        "jobs|helpers|tasks [ID|stop ID]",
        "See and stop background processes and helpers.",
        "jobs:handle_jobs",
        local=_MACHINE,
        anytime=True,
    ),
    _row(
        "init [wishes]",
        "Write AGENTS.md from what the repository shows.",
        "own_programs:write_instructions",
        local=_FILES,
    ),
    _row("config [KEY [VALUE]]", "Show or set a setting.", "own_programs:run_config", local=_MACHINE),
    _row("theme [name]", "Choose the colours.", "own_programs:choose_theme", local=_TERMINAL),
    _row("mcp [list|add|test ...]", "See, add and test MCP servers.", "own_programs:run_mcp", local=_MACHINE),
    _row(
        "hooks [accept|refuse]",
        "See the hooks, and accept the repository's.",
        "own_programs:run_hooks",
        local=_MACHINE,
    ),
    _row(
        "plugins [install|enable|disable ...]",
        "See, install and enable plugins.",
        "own_programs:run_plugins",
        local=_MACHINE,
    ),
    _row(
        "cron [add|pause|resume|rm ...]",
        "See, add and pause schedules.",
        "own_programs:run_cron",
        local=_MACHINE,
    ),
    _row(
        "sandbox [status|explain|try ...]",
        "See what commands may reach, and try one.",
        "own_programs:run_sandbox",
        local=_MACHINE,
    ),
    _row("doctor", "Check that everything works.", "own_programs:run_doctor", local=_MACHINE),
    _row("login", "Get a key by a login in the browser.", "own_programs:run_login", local=_MACHINE),
    _row(
        "agents [show|stop ID]",
        "See every session of this machine, and its state.",
        "own_programs:run_agents",
        local=_OTHERS,
    ),
    _row("copy", "Copy the last answer to the clipboard.", "copy_answer", local=_TERMINAL, anytime=True),
    _row("quit|exit|q", "End the chat.", "leave_chat", local=_TERMINAL, anytime=True),
)


def is_built_in(name: str) -> bool:
    """Return whether a built-in command has this name or alias."""
    return any(name == command.name or name in command.aliases for command in SLASH_COMMANDS)
