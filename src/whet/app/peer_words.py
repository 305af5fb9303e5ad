"""Commands and options of other agents, and what does the same in Whet.

An unknown command is looked up here first; then similar names are suggested. In a hint `"..."` stands for the
words after the command, and `"WORD ..."` for the command and those words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

SHELL_WORDS: dict[str, str] = {
    "login auth auth-login auth-status signin connect"
    " key keys apikey token setup-token whoami": "`whet model login` gets a key",
    "logout signout": "`whet config path` names the folder with the keys, in .env",
    "setup configure onboard onboarding wizard": "`whet doctor` says what is missing",
    "init": "/init in the chat writes AGENTS.md; `whet doctor` says what is missing",
    "settings setting preferences prefs set"
    " get env theme features experimental": "`whet config` reads and changes settings",
    "export share dump save": "`whet sessions export`",
    "resume continue open attach": "`whet --resume` picks a session, `whet -c` opens the latest one",
    "history list ls session conversations thread threads chats": "`whet sessions`",
    "logs log": "logs/whet.log in the folder of `whet config path`",
    "search find grep recall": "`whet sessions search`",
    "fork clone branch-session": "`whet sessions fork`",
    "delete rm remove clean clear": "`whet sessions delete`, `whet skills retire` or `whet plugins disable`",
    "exec e ask prompt print query question q complete generate": (
        '`whet "..."` or `whet chat -q "..."` answers one question'
    ),
    "tui start new repl interactive code talk": "`whet` begins a chat",
    "models provider providers ollama": "`whet model list`, `whet model set NAME`",
    "usage stats tokens spend billing budget": "`whet cost`",
    "permissions permission allow allowlist trust rules policy execpolicy": "`whet approvals`",
    "agent ps": "`whet agents`",
    "task tasks dispatch background loop": "`whet goal` and `whet run`",
    "restore rollback revert checkpoint checkpoints snapshot reset": "`whet rewind`",
    "apply patch changes": "`whet diff` shows what a turn changed",
    "schedule schedules scheduler job jobs timer remind": "`whet cron`",
    "web ui gui dashboard server api daemon app app-server cloud remote remote-control rc"
    " teleport": "`whet serve`",
    "telegram discord slack whatsapp bot channels github": "`whet gateway`",
    "browser chrome": "`whet mcp add-browser` gives the agent a browser",
    "mcp-server": "`whet mcp serve`",
    "auto auto-mode yolo": "`whet chat --approvals auto` asks only before what is dangerous",
    "db database": "`whet store`",
    "ide editor vscode zed": "`whet acp`",
    "skill prompts commands": "`whet skills`",
    "remember memories notes note facts learned lessons": "`whet memory`",
    "plugin extension extensions marketplace": "`whet plugins`",
    "install add": "`whet plugins install`, `whet skills install` or `whet mcp add`",
    "commit push pull pr issue branch merge stage lint format fix build deploy refactor todo edit write"
    " explain code-review security-review ultrareview simplify": ('`whet "WORD ..."` has it done, in words'),
    "hook": "`whet hooks`",
    "mcps tools tool": "`whet mcp`",
    "migrate": "`whet import`",
    "uninstall": "`uv tool uninstall whet-agent`, or pip uninstall whet-agent",
    "update upgrade self-update": "`git pull`, then install it again as you did",
    "status health check debug diagnose test": "`whet doctor`",
    "tutorial tour example": "`whet demo`",
    "compact compress": "`whet context compact`",
    "help man": "`whet --help`, and with a command before it",
    "benchmark bench": "`whet eval`",
}
SLASH_WORDS: dict[str, str] = {
    "auth signin connect apikey key keys": "/login",
    "setup onboard status-check health checkup debug heapdump about": "/doctor",
    "logout": "the keys are in .env in Whet's home; /config path names it",
    "color colors colour colours appearance style": "/theme",
    "vim vi keybindings keymap": "/config ui.keys vi, from the next start",
    "hotkeys shortcuts keys-help": "/help",
    "debug-config experimental features": "/config",
    "statusline footer": "/config ui.status_line, from the next start",
    "terminal-setup newline multiline multiline-mode": (
        "Alt-Enter, or \\ and Enter, starts a new line; Shift-Enter does in many terminals"
    ),
    "voice dictate speech": (
        "there is no voice here; `whet gateway` writes down voice notes, with voice.command"
    ),
    "settings setting set preferences prefs env": "/config",
    "providers provider models scoped-models setup-bedrock setup-vertex editor-model weak-model": "/model",
    "whoami passes": "/account",
    "agent subagents dashboard": "/agents",
    "ps bashes background processes shells": "/jobs",
    "stats tokens spend insights extra-usage quota": "/usage",
    "continue history open load switch": "/resume",
    "restore revert rollback checkpoint checkpoints back": "/rewind",
    "branch btw side clone": "/fork",
    "redo": "/rewind undo",
    "name": "/rename",
    "regenerate again": "/retry",
    "share save dump download": "/export",
    "details verbose expand output log": "/calls",
    "yolo auto chat-mode trust allow allowed-tools approve policies rules"
    " less-permission-prompts": "/approvals",
    "remember note memories": "/memory",
    "skill commands prompts prompt": "/skills",
    "loop workflow workflows batch": "/goal",
    "todo todos task": "/plan",
    "think ultraplan": "/plan",
    "summarize summarise recap": "/compact",
    "changes patch": "/diff",
    "bye close": "/quit",
    "thumbsup up": "/good",
    "thumbsdown down": "/bad",
    "stop cancel interrupt abort": "Esc stops a turn",
    "editor edit": "Ctrl-G opens your editor",
    "image attach file"
    " add paste mention": "@path sends a file's name, and an image itself; Ctrl-V pastes an image",
    "run bash shell exec sh": "!command runs a command here",
    "reasoning thinking effort"
    " fast reasoning-effort think-tokens": "/config model.reasoning_effort high, from the next start",
    "add-dir directory directories dir": "/config sandbox.write FOLDER, from the next start",
    "cd cwd pwd workspace workspaces worktree": "`whet chat --workspace FOLDER` works in that folder",
    "plugin extension extensions marketplace": "/plugins",
    "hook": "/hooks",
    "mcps servers connectors apps": "/mcp",
    "browser chrome": "/mcp add-browser",
    "bug feedback report": "a report needs what /doctor --json prints; /export writes a session",
    "grep find recall": "/search",
    "review pr-comments code-review security-review"
    " ultrareview simplify verify autofix-pr": "ask for it: review the changes of this branch",
    "commit push pull pr git lint format test build fix deploy issue": (
        "ask for it in words, or run it yourself: !git status"
    ),
    "ask chat code architect explain ok": "words without / go to the model",
    "drop read-only ls map map-refresh": "no file has to be added or dropped; /context shows what is sent",
    "web fetch browse url": "write the address in your message; the model reads the page",
    "release-notes changelog whats-new": "CHANGELOG.md in Whet's repository",
    "instructions agents-md claude-md": "/init",
    "personality output-style tone": "say in AGENTS.md or by /memory how it should answer",
    "reload reload-skills reload-plugins refresh restart": (
        "skills and prompt files are read anew by themselves; plugins and settings from the next start"
    ),
    "unshare": "nothing is shared: /export only writes a file",
    "privacy privacy-settings incognito": "/private",
    "archive delete": "`whet sessions archive` and `whet sessions delete` do that",
    "logs": "logs/whet.log in the folder of /config path",
    "queue": "text that you send during a turn reaches it before its next step",
    "schedule schedules remind reminder routines": "/cron",
    "telegram slack discord install-slack-app install-github-app setup-github": (
        "`whet gateway` answers from chat platforms and webhooks, in another terminal"
    ),
    "mobile desktop remote-control remote-env rc teleport web-setup": (
        "`whet serve` has a page for browsers and phones, in another terminal"
    ),
    "sandbox-add-read-dir setup-default-sandbox": "/sandbox",
    "ide": "`whet acp` serves an editor",
    "update upgrade": "`git pull`, then install it again as you did",
}
# Options of other agents, for commands that do not have an option of that name.
OPTION_WORDS: dict[str, str] = {
    "-p --print --prompt --message --prompt-interactive -e --exec --headless --non-interactive": (
        '`whet "..."` answers one question'
    ),
    "--dangerously-skip-permissions --allow-dangerously-skip-permissions --yolo -y --full-auto --auto"
    " --dangerously-bypass-approvals-and-sandbox --auto-approve --always-approve --yes-always --approve"
    " --allow-all --allow-all-tools --permission-mode --approval-mode --ask-for-approval -a --force -f"
    " --trust-all-tools --skip-permissions": (
        "`whet chat --yes` asks only about what is dangerous; --approvals ask, plan, auto or deny"
    ),
    "--allowedtools --allowed-tools --allow-tool --disallowedtools --disallowed-tools --deny-tool --tools"
    " --available-tools --exclude-tools --no-tools": (
        "`whet chat --toolsets A,B` limits the tools; `whet approvals` keeps rules for their calls"
    ),
    "--mode": '--approvals ask, plan, auto or deny; `whet "..." --json` prints JSON',
    "-i --images --attachment": "`whet chat --image FILE`, or @FILE in the question",
    "--search --web-search": "`whet config set search.provider NAME` gives the agent web_search",
    "--output-format --output --stream --input-format --include-partial-messages -o --output-last-message": (
        '`whet "..." --json` or --stream-json'
    ),
    "--json-schema --output-schema": "`whet serve` answers requests that bring a schema (response_format)",
    "-C --cd --cwd --dir --directory -d --project": "`whet chat --workspace DIR`",
    "--add-dir --include-directories": "`whet config set sandbox.write FOLDER`",
    "--system-prompt --append-system-prompt"
    " --system-prompt-file --append-system-prompt-file": "AGENTS.md in the folder is sent with each session",
    "--agent --agents": "the model starts helpers by itself; AGENTS.md is sent with each session",
    "--fork --fork-session": "`whet --resume` opens a session, /fork there copies it",
    "--ephemeral --no-session --no-session-persistence": (
        "`whet chat --private` is not searched or learnt from"
    ),
    "--effort --reasoning-effort --think --thinking --variant": (
        "`whet config set model.reasoning_effort high`"
    ),
    "--mcp-config --strict-mcp-config --allowed-mcp-server-names": "`whet mcp add`",
    "--fallback-model": "`whet config set fallback.model NAME`, and fallback.provider",
    "--max-budget-usd --max-budget --budget": "`whet config set wallet.session_usd 5`",
    "--settings --setting-sources --config --env-file": (
        "`whet config set model.model NAME`, or WHET_MODEL_MODEL=NAME for one run, and the like"
    ),
    "--oss --local-provider --ollama": "`whet doctor` finds servers of this machine; --base-url names one",
    "--api-key --openai-api-key --anthropic-api-key": "whet config set OPENAI_API_KEY asks for it unseen",
    "--models --list-models": "`whet model list`",
    "--list-sessions": "`whet sessions list`",
    "--delete-session": "`whet sessions delete`",
    "--export --share": "`whet sessions export`",
    "--theme --dark-mode --light-mode --color --colour": "`whet config set ui.theme NAME`",
    "--vim": "`whet config set ui.keys vi`",
    "--architect --plan": "`whet chat --approvals plan`",
    "--weak-model --small-model": "`whet config set review.model NAME`",
    "--file --read --message-file": "name files in the question, as @path; -q - reads standard input",
    "--extension --extensions --list-extensions --plugin-dir --enable --disable": "`whet plugins`",
    "--skill --skills": "`whet skills`; $NAME in a message loads one",
    "--chrome --browser": "`whet mcp add-browser`",
    "--ide --acp --vscode": "`whet acp`",
    "--attach --port --remote --teleport --mdns --web": "`whet serve`",
    "--bg --background --tmux": "`whet run` does many tasks at once, `whet agents` shows them",
    "--test-cmd --auto-test --lint-cmd --auto-lint": "`whet goal start TEXT --verify CMD`",
    "--git --no-git --auto-commits --no-auto-commits": "it commits only if you ask it to",
    "-w --worktree": "`git worktree add DIR`, then `whet chat --workspace DIR`",
    "-n --name": "`whet chat --title TEXT`",
    "--max-turns": "`whet chat --max-steps N`",
    "-r --session-id --last": "`whet --resume` picks a session, `whet -c` opens the latest one",
    "--sandbox -s": "`whet sandbox` says what holds commands; `whet chat --approvals plan` only reads",
    "-v": "`whet --version`; what happened is in logs/whet.log, in the folder of `whet config path`",
    "--verbose --debug": "what happened is in logs/whet.log, in the folder of `whet config path`",
}
# Our commands whose names mean something else in other tools: hints for a call that lacks an argument.
OTHER_MEANINGS: dict[str, str] = {
    "run": '`whet "..."` does one task; whet run --help',
    "undo": "`whet rewind` takes files and turns back, `whet undo CHANGE` what was learned",
    "review": '`whet "review my changes"` asks for a code review; `whet review` is about what was learned',
}


# Each row lists verbs that mean the same. A group of our commands has at most one of a row.
_SAME_VERBS = (
    "start add install new create register enable init",
    "delete remove rm del drop erase retire revoke reject uninstall unset forget logout disable",
    "list ls all index",
    "show view open cat info describe get print status inspect details read",
    "stop kill cancel end abort terminate pause",
    "set use select switch choose pick",
)


def find_meaning(word: str, table: dict[str, str], words: Sequence[str] = ()) -> str:
    """Return the hint of `table` for a word, or "". `words` are the word and those typed after it."""
    spellings = {word, word.lower()}
    hint = next((hint for names, hint in table.items() if spellings & set(names.split())), "")
    arguments = " ".join(words[1:]).replace('"', "'")
    hint = hint.replace("WORD ...", f"{word} {arguments or '...'}")
    return hint.replace('"..."', f'"{arguments}"') if arguments else hint


def find_subcommand(name: str, names: Collection[str]) -> str:
    """Return the command of a group that means the same as `name`, or "". If `name` is a text of several
    words, it becomes the command's argument."""
    if name == "help":
        return "--help"
    if " " in name:
        verb = next((verb for verb in _SAME_VERBS[0].split() if verb in names), "")
        return f'{verb} "{name}"' if verb else ""
    verbs = next((row for row in _SAME_VERBS if name in row.split()), "")
    return next((verb for verb in verbs.split() if verb in names), "")


def find_near_meaning(word: str, table: dict[str, str], words: Sequence[str] = ()) -> str:
    """Return the hint of `table` for the word that `word` is a misspelling of, or "". A word of fewer than
    four letters is never taken for a misspelling."""
    if len(word) < _LETTERS_PER_SLIP:
        return ""
    names = [name for names in table for name in names.split() if len(name) >= _LETTERS_PER_SLIP]
    near = min(names, key=lambda name: _count_slips(word, name))
    is_slip = _count_slips(word, near) <= len(word) // _LETTERS_PER_SLIP
    return find_meaning(near, table, (near, *words[1:])) if is_slip else ""


_MIN_PREFIX = 4
_LETTERS_PER_SLIP = 4


def find_near_names(word: str, names: Collection[str]) -> list[str]:
    """Return up to three names that begin with `word`, or the one name that it misspells or lengthens.

    A misspelling has at most one slip in four letters: a wrong, missing or extra letter, or two letters that
    changed places.
    """
    if completions := [name for name in names if name.startswith(word)]:
        return completions[:3]
    slips = {name: _count_slips(word, name) for name in names}
    nearest = min(slips, key=slips.__getitem__, default="")
    if nearest and slips[nearest] <= max(len(word) // _LETTERS_PER_SLIP, 1) < len(nearest):
        return [nearest]
    shorter = [name for name in names if len(name) >= _MIN_PREFIX and word.startswith(name)]
    return [max(shorter, key=len)] if shorter else []


def _count_slips(word: str, name: str) -> int:
    """Return the edit distance, in which two neighbours that changed places count once."""
    before: list[int] = []
    last = list(range(len(name) + 1))
    for at, letter in enumerate(word, 1):
        row = [at]
        for to, other in enumerate(name, 1):
            slips = min(last[to] + 1, row[-1] + 1, last[to - 1] + (letter != other))
            if at > 1 and to > 1 and letter == name[to - 2] and word[at - 2] == other:
                slips = min(slips, before[to - 2] + 1)
            row.append(slips)
        before, last = last, row
    return last[-1]
