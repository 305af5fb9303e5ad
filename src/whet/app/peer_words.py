"""Words that people bring from other agents and tools, and how the same is done here.

A word that is no command is looked up here before names that are spelled alike are suggested.
"""

from __future__ import annotations

SHELL_WORDS: dict[str, str] = {
    "login auth signin connect key keys apikey token setup-token": "`whet model login` gets a key",
    "logout signout": "`whet config path` names the folder with the keys, in .env",
    "setup configure onboard onboarding wizard init": "`whet doctor` says what is missing",
    "settings setting preferences prefs set get env": "`whet config` reads and changes settings",
    "export share dump save": "`whet sessions export`",
    "resume continue open attach": "`whet --resume` picks a session, `whet -c` opens the latest one",
    "history list ls session conversations threads chats": "`whet sessions`",
    "logs log": "logs/whet.log in the folder of `whet config path`",
    "search find grep recall": "`whet sessions search`",
    "delete rm remove clean clear": "`whet sessions delete`",
    "exec e ask prompt print query question q complete generate explain": '`whet "..."` answers one question',
    "tui start new repl interactive code talk": "`whet` begins a chat",
    "models provider providers ollama": "`whet model list`, `whet model set NAME`",
    "usage stats tokens spend billing budget": "`whet cost`",
    "permissions permission allow allowlist trust rules": "`whet approvals`",
    "agents agent task tasks dispatch background loop": "`whet goal` and `whet run`",
    "restore rollback revert checkpoint checkpoints snapshot reset": "`whet rewind`",
    "apply patch changes": "`whet diff` shows what a turn changed",
    "schedule schedules scheduler job jobs timer remind": "`whet cron`",
    "web ui gui dashboard server api daemon app": "`whet serve`",
    "telegram discord slack whatsapp bot channels": "`whet gateway`",
    "ide editor vscode zed": "`whet acp`",
    "skill prompts commands": "`whet skills`",
    "remember memories notes note facts learned lessons": "`whet memory`",
    "plugin extension extensions install marketplace": "`whet plugins`",
    "hook": "`whet hooks`",
    "mcps tools tool": "`whet mcp`",
    "migrate": "`whet import`",
    "uninstall": "`uv tool uninstall whet-agent`, or pip uninstall (docs/update.md)",
    "update upgrade self-update": "`git pull`, then install it again as you did (docs/update.md)",
    "status health check debug diagnose test": "`whet doctor`",
    "tutorial tour example": "`whet demo`",
    "compact compress": "`whet context compact`",
    "help man": "`whet --help`",
    "benchmark bench": "`whet eval`",
}
SLASH_WORDS: dict[str, str] = {
    "init": "ask for it: write an AGENTS.md that describes this repository",
    "login auth connect setup": "`whet model login` does that, in another terminal",
    "logout": "the keys are in .env in Whet's home; `whet config path` names it",
    "theme color colors": "`whet config set ui.theme light` (or dark, plain), in another terminal",
    "vim vi keybindings": "`whet config set ui.keys vi`, in another terminal",
    "settings setting set": "`whet config` does that, in another terminal",
    "providers provider models": "/model",
    "agents agent subagents ps bashes background": "/jobs",
    "stats tokens spend": "/usage",
    "continue history open load switch": "/resume",
    "restore revert rollback checkpoint checkpoints back": "/rewind",
    "branch btw": "/fork",
    "redo regenerate again": "/retry",
    "share save dump download": "/export",
    "details verbose expand output log": "/calls",
    "yolo auto trust allow allowed-tools": "/approvals",
    "remember note": "/memory",
    "skill commands prompts": "/skills",
    "loop task": "/goal",
    "think": "/plan",
    "summarize summarise": "/compact",
    "changes patch": "/diff",
    "bye close": "/quit",
    "thumbsup up": "/good",
    "thumbsdown down": "/bad",
    "stop cancel interrupt abort": "Esc stops a turn",
    "editor edit": "Ctrl-G opens your editor",
    "image attach file add paste": "@path sends a file's name, and an image itself; Ctrl-V pastes an image",
    "run bash shell exec sh": "!command runs a command here",
    "reasoning thinking effort fast": "`whet config set model.reasoning_effort high`, in another terminal",
    "add-dir": "`whet config set sandbox.write FOLDER`, in another terminal",
    "plugin extensions": "`whet plugins` does that, in another terminal",
    "hook": "`whet hooks` does that, in another terminal",
    "ide": "`whet acp` serves an editor",
    "update upgrade": "`git pull`, then install it again as you did (docs/update.md)",
}


def find_meaning(word: str, table: dict[str, str]) -> str:
    """Return what `table` says of a word, or ""."""
    wanted = word.lower()
    return next((hint for words, hint in table.items() if wanted in words.split()), "")
