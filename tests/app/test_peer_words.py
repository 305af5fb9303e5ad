"""Words of other agents lead to what does the same here, and the tables name only what exists."""

from __future__ import annotations

import re

import click
import pytest

from tests.support import each
from whet.app.conversations.slash import Commands
from whet.app.peer_words import OPTION_WORDS, SHELL_WORDS, SLASH_WORDS, find_meaning, find_near_names
from whet.cli.group import run, whet
from whet.cli.interactive.chat_control import ChatControl
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.schema import Settings
from whet.contract.errors import NotFound


def slash_commands() -> Commands[ChatControl]:
    commands: Commands[ChatControl] = Commands()
    for command in SLASH_COMMANDS:
        commands.add(command)
    return commands


@each("hint", [*SHELL_WORDS.values(), *SLASH_WORDS.values(), *OPTION_WORDS.values()])
def test_a_hint_names_commands_and_settings_that_exist(hint: str) -> None:
    for line in re.findall(r"`whet ([a-z][^`]*)`", hint):
        command: click.Command = whet
        words = line.split()
        while words and isinstance(command, click.Group) and words[0].islower():
            subcommand = command.get_command(click.Context(command), words.pop(0))
            assert subcommand is not None, line
            command = subcommand
        if line.startswith("config set"):
            section, _, key = words[0].partition(".")
            assert hasattr(getattr(Settings(), section), key)
    if hint.startswith("/"):
        assert hint[1:].split()[0] in slash_commands()
    if setting := re.match(r"/config ([a-z]+)\.([a-z_]+)", hint):
        assert hasattr(getattr(Settings(), setting[1]), setting[2])


@pytest.mark.parametrize("table", [SHELL_WORDS, SLASH_WORDS, OPTION_WORDS])
def test_a_word_is_listed_once(table: dict[str, str]) -> None:
    words = " ".join(table).split()
    assert len(words) == len(set(words))


def test_no_word_of_a_table_is_a_command() -> None:
    assert not set(" ".join(SHELL_WORDS).split()) & set(whet.list_commands(click.Context(whet)))
    assert not [word for word in " ".join(SLASH_WORDS).split() if word in slash_commands()]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subagents", "did you mean /agents?"),
        ("vim", "did you mean /config ui.keys vi, from the next start?"),
        ("signin", "did you mean /login?"),
        ("titel", "did you mean /title?"),
        ("hlep", "did you mean /help?"),
        ("export-session", "did you mean /export?"),
        ("shrae", "did you mean /export?"),
        ("bahses", "did you mean /jobs?"),
        ("output-style", "say in AGENTS.md or by /memory how it should answer"),
        ("stash", "/help lists the commands"),
        ("telescope", "/help lists the commands"),
        ("lang", "/help lists the commands"),
        ("zzzz", "/help lists the commands"),
    ],
)
def test_meaning_comes_before_spelling(name: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        slash_commands().get(name)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("word", "names", "near"),
    [
        ("ex", ["exit", "help", "export", "explain", "execute"], ["exit", "export", "explain"]),
        *((word, ["jobs", "help"], ["help"]) for word in ("hlep", "ehlp", "hepl", "helq", "hlp", "heelp")),
        *((word, ["jobs", "help"], []) for word in ("ehpl", "hexx", "hp", "phel")),
        ("sesisnos", ["session", "sessions"], ["sessions"]),
        ("esisnos", ["session", "sessions"], []),
        ("w", ["q"], []),
        ("sessions-of-today", ["sess", "sessions", "session"], ["sessions"]),
        ("session-list", ["ses", "jobs"], []),
        ("sess-list", ["sess", "list"], ["sess"]),
        ("anything", [], []),
    ],
)
def test_near_names_complete_a_word_or_differ_by_a_slip_in_four_letters(
    word: str, names: list[str], near: list[str]
) -> None:
    assert find_near_names(word, names) == near


def test_a_command_that_a_chat_lacks_is_not_suggested() -> None:
    with pytest.raises(NotFound) as caught:
        Commands[ChatControl]().get("subagents")
    assert caught.value.hint == "/help lists the commands"
    assert find_meaning("LOGIN", SHELL_WORDS) == "`whet model login` gets a key"


# Mistakes and commands of other agents, and a word of the answer that is right for each.
TYPED_AT_THE_SHELL = {
    "login": "model login", "auth": "model login", "logout": "config path", "setup": "doctor",
    "configure": "doctor", "settings": "config", "init": "/init", "export": "sessions export",
    "resume": "--resume", "continue": "-c", "history": "sessions", "threads": "sessions", "logs": "log",
    "search": "sessions search", "exec": 'whet "..."', "ask": 'whet "..."', "prompt": 'whet "..."',
    "tui": "begins a chat", "models": "model list", "usage": "cost", "stats": "cost",
    "permissions": "approvals", "agent": "agents", "dispatch": "goal", "restore": "rewind",
    "apply": "diff", "schedule": "cron", "web": "serve", "telegram": "gateway", "vscode": "acp",
    "prompts": "skills", "remember": "memory", "extensions": "plugins", "hook": "hooks", "tools": "mcp",
    "migrate": "import", "update": "git pull", "status": "doctor", "compact": "context compact",
    "modle": "model", "install": "mcp add", "commit": 'whet "commit ..."', "pr": 'whet "pr ..."',
    "uninstall": "uv tool", "upgrade": "git pull", "session": "sessions", "attach": "--resume",
    "log": "logs", "key": "model login", "provider": "model set", "ps": "agents",
    "fork": "sessions fork", "app-server": "serve", "browser": "mcp add-browser", "mcp-server": "mcp serve",
    "thread": "sessions", "features": "config", "auth-status": "model login", "execpolicy": "approvals",
    "ultrareview": 'whet "ultrareview ..."', "remote-control": "serve", "auto-mode": "--approvals auto",
}  # fmt: skip
TYPED_IN_THE_CHAT = {
    "signin": "/login", "color": "/theme", "settings": "/config", "setup": "/doctor",
    "vim": "/config ui.keys vi", "models": "/model",
    "subagents": "/agents", "bashes": "/jobs", "stats": "/usage", "continue": "/resume",
    "checkpoints": "/rewind", "branch": "/fork", "regenerate": "/retry", "share": "/export",
    "yolo": "/approvals", "remember": "/memory", "loop": "/goal", "think": "/plan", "patch": "/diff",
    "bye": "/quit", "stop": "Esc", "edit": "Ctrl-G", "image": "@path", "bash": "!command", "mcps": "/mcp",
    "claude-md": "/init", "bug": "/doctor --json", "review": "ask for it", "schedule": "/cron",
    "titel": "/title", "add": "@path", "drop": "/context", "redo": "/rewind undo", "commit": "!git",
    "logout": "config path", "todos": "/plan", "run": "!command", "ask": "words without /",
    "tokens": "/usage", "output-style": "AGENTS.md", "add-dir": "sandbox.write", "grep": "/search",
    "plugin": "/plugins", "web": "the address", "architect": "words without /", "details": "/calls",
    "terminal-setup": "Alt-Enter", "directory": "sandbox.write", "voice": "whet gateway", "cd": "--workspace",
    "keybindings": "ui.keys", "side": "/fork", "fast": "reasoning_effort",
    "statusline": "/config ui.status_line",
    "checkup": "/doctor", "debug": "/doctor", "hotkeys": "/help", "shortcuts": "/help",
    "security-review": "ask for", "insights": "/usage", "recap": "/compact", "mention": "@path",
    "memories": "/memory", "apps": "/mcp", "clone": "/fork", "archive": "sessions archive",
    "reload": "from the next start", "chrome": "/mcp add-browser", "remote-control": "whet serve",
    "install-github-app": "whet gateway", "less-permission-prompts": "/approvals", "workflows": "/goal",
    "ultraplan": "/plan", "shells": "/jobs", "personality": "AGENTS.md", "keymap": "ui.keys",
    "think-tokens": "reasoning_effort", "scoped-models": "/model", "debug-config": "/config",
    "privacy": "/private", "worktree": "--workspace",
}  # fmt: skip


@each("table", [TYPED_AT_THE_SHELL, TYPED_IN_THE_CHAT])
def test_typical_mistakes_lead_to_what_was_meant(table: dict[str, str]) -> None:
    poor: list[str] = []
    for word, expected in table.items():
        try:
            if table is TYPED_AT_THE_SHELL:
                whet.resolve_command(click.Context(whet), [word])
            else:
                slash_commands().get(word)
        except NotFound as error:
            hint = f"{error.message} {error.hint}"
        except click.UsageError as error:
            hint = error.message
        else:
            hint = "a command"
        if expected not in hint:
            poor.append(f"{word}: {hint}")
    assert poor == []


# Met by their meaning, and not by their letters.
OPTIONS_OF_PEERS = {
    "--print": '`whet "fix the tests"`', "--yolo": "`whet chat --yes`", "--fork-session": "/fork",
    "--permission-mode": "--approvals ask, plan, auto or deny", "--no-session": "`whet chat --private`",
    "-C": "`whet chat --workspace DIR`", "--thinking": "model.reasoning_effort", "--agent": "AGENTS.md",
    "-i": "`whet chat --image FILE`", "--mode": '`whet "fix the tests" --json`',
    "--search": "search.provider", "--sandbox": "--approvals plan", "-v": "`whet --version`",
}  # fmt: skip


@pytest.mark.fast_rows("arguments0-", "arguments1")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["chat", "-p", "hi"], '`whet "..."`'),
        (["chat", "--print"], '`whet "..."`'),
        (["--print", 'say "hi" to me'], "`whet \"say 'hi' to me\"`"),
        (["--prompt-interactive", "fix the bug"], '`whet "fix the bug"`'),
        (["run", "fix the bug"], '`whet "fix the bug"` does one task'),
        (["exec", "fix the bug"], '`whet "fix the bug"`'),
        (["fix", "the", "bug"], '`whet "fix the bug"` has it done'),
        (["please", "help", "me"], 'to ask it: whet chat -q "please help me"'),
        (["/init"], "type it in the chat: `whet`, then /init"),
        (["-q", "fix", "the", "bug"], 'quote the question: whet chat -q "fix the bug"'),
        (["--yes", "doctor", "--json"], 'the command is `whet doctor`; to ask it: whet chat -q "doctor"'),
        (["--verbose", "fix it now"], "logs/whet.log"),
        (["chat", "--dangerously-skip-permissions"], "--yes"),
        (["chat", "--full-auto", "-q", "hi"], "--approvals"),
        (["goal", "start", "x", "--yolo"], "--yes"),
        (["chat", "--allowedTools", "Bash"], "--toolsets"),
        (["-p", "fix the bug", "--output-format", "json"], '`whet "fix the bug" --json`'),
        (["--fallback-model", "x", "fix it now"], "fallback.model"),
        (["--max-budget-usd", "5", "fix it now"], "wallet.session_usd"),
        (["chat", "--list-models"], "`whet model list`"),
        (["chat", "--oss"], "`whet doctor`"),
        (["--worktree", "fix it now"], "git worktree add"),
        (["chat", "--auto-test"], "whet goal start"),
        (["chat", "--dark-mode"], "ui.theme"),
        (["chat", "--no-auto-commits"], "only if you ask"),
        (["chat", "--delete-session", "3"], "`whet sessions delete`"),
        (["chat", "--plugin-dir", "x"], "`whet plugins`"),
        (["chat", "--unheard-of"], "whet chat --help"),
        (["run", "fix the tests"], '`whet "fix the tests"` does one task'),
        (["undo"], "`whet rewind` takes files and turns back"),
        (["sandbox", "docker"], "whet sandbox has: "),
        (["mcp", "install"], "`whet mcp add`; whet mcp has: "),
        (["sessions", "rm", "x"], "`whet sessions delete`; whet sessions has: "),
        (["skills", "uninstall", "x"], "`whet skills retire`; "),
        (["agents", "kill", "x"], "`whet agents stop`; "),
        (["model", "use", "x"], "`whet model set`; "),
        (["goal", "fix the tests"], '`whet goal start "fix the tests"`; '),
        (["sessions", "help"], "`whet sessions --help`; "),
        (["sandbox", "ls"], "hint: whet sandbox has: "),
        (["hlep"], "`whet --help`"),
        (["versoin"], "did you mean `whet version`?"),
        (["resmue"], "`whet --resume` picks a session"),
        (["explain", "a.py"], '`whet "explain a.py"`'),
        (["remove", "deploy"], "`whet skills retire`"),
        (["why"], 'to ask it: whet chat -q "why"'),
        *(([option, "x", "fix the tests"], hint) for option, hint in OPTIONS_OF_PEERS.items()),
    ],
)
def test_an_opening_of_a_peer_leads_to_the_one_that_does_the_same(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert hint in error and not (arguments[0] in OPTIONS_OF_PEERS and "Did you mean" in error)


@pytest.mark.parametrize(
    "arguments",
    [
        ["goal", "start", "x", "--verify", ""],
        ["goal", "start", "x", "--budget", " "],
        ["goal", "start", "x", "--guard", ""],
        ["chat", "-q", "hi", "--session", ""],
        ["chat", "-q", "hi", "--workspace", ""],
        ["chat", "-q", "hi", "--model", ""],
        ["chat", "-q", "hi", "--toolsets", ""],
    ],
)
def test_an_empty_option_is_refused_before_anything_runs(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "it is empty; give a value, or leave the option out" in capsys.readouterr().err
