"""Handlers of slash commands. Their names and help are in `slash_commands.py`."""

from __future__ import annotations

import base64
import os
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.app import modes
from whet.app.conversations.slash import Commands, SlashCommand
from whet.beneath import explain_failure, replace_file
from whet.cli.interactive import selection_lists
from whet.cli.interactive.chat_control import ChatControl
from whet.cli.interactive.context_report import OUTCOMES, report_lines
from whet.cli.interactive.forks import tree_line
from whet.cli.interactive.rewind_commands import describe_unrestored_files
from whet.clock import iso
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.contract.events import Event
from whet.contract.texts import parse_typed_number, plural
from whet.log import mask
from whet.store import compactions, forks, grants, outcomes, sessions, turns, warm
from whet.store.helper_rows import helper_usage
from whet.store.parts import AnswerPart, list_parts, typed_text
from whet.store.transcript import is_cut_off
from whet.terminal import wording
from whet.terminal.pasted_text import fold_pastes

if TYPE_CHECKING:
    from whet.app.plugins.sessions import PluginParts

_LISTED = 12
_KEYS = (
    "Alt-Enter or a trailing \\ starts a new line, @ finds a file, //x sends /x, !x runs x here,"
    " # x remembers x. Esc stops a turn, Esc Esc goes back to an earlier message, Ctrl-O shows a call whole,"
    " Ctrl-B puts a command into the background, Ctrl-G opens your editor, Ctrl-V pastes an image. Typed text"
    " reaches a running turn before its next step."
)
_LABEL_COLUMNS = 26
_WIDE = 70  # columns from which /help also shows a command's arguments


async def show_warm_start(chat: ChatControl, argument: str) -> None:
    """Show how the session was started, or start one from a template."""
    if argument:
        await chat.begin(warm=argument)
        chat.say(f"new session, to be started warm with {argument}", "dim")
        return
    session_id = chat.session.id
    start = await chat.services.database.read(lambda db: warm.read_start(db, session_id))
    if start is None:
        chat.say("this session was started cold; /warm NAME (or auto) starts one warm", "dim")
    else:
        chat.say(
            f"template {start.template}, {plural(start.examples, 'example')}, {start.arm} ({start.chosen_by})"
        )


async def show_help(chat: ChatControl, argument: str) -> None:
    """List the commands and the keys."""
    is_wide = chat.width() >= _WIDE
    from whet.app.conversations.own_commands import list_prompt_commands  # noqa: PLC0415 - only /help lists them

    # People on a chat platform may see the workspace's commands, but not those in the owner's home.
    root = chat.services.home.root if chat.learning is chat.services.learning.owner_service else None
    commands = [*chat.commands]
    for prompt in list_prompt_commands(root, chat.session.workspace):
        if prompt.as_slash().name not in chat.commands:
            commands.append(prompt.as_slash())
    rows = [(f"/{c.name} {c.argument if is_wide else ''}".rstrip(), c) for c in commands]
    label_width = min(max(len(label) for label, _ in rows), _LABEL_COLUMNS)
    for label, command in rows:
        also = " ".join(f"/{alias}" for alias in command.aliases)
        text = f"{command.help} Also {also}." if also else command.help
        first, *others = textwrap.wrap(text, max(chat.width() - label_width - 5, 20)) or [""]
        if len(label) > label_width:
            label, first, others = f"{label}\n", "", [first, *others]
        lines = [f"  {label:<{label_width}}  {first}".rstrip(" ")]
        lines += [f"{'':<{label_width + 4}}{line}" for line in others]
        chat.say(wording.printable("\n".join(line.rstrip("\n") for line in lines)))
    listed = [
        textwrap.fill(f"  {name:<5} {modes.ABOUT[name]}", chat.width() - 1, subsequent_indent=" " * 8)
        for name in modes.MODES
    ]
    chat.say("\n".join(("", "Modes, which Shift-Tab changes:", *listed, "", _KEYS)), "dim")


async def start_session(chat: ChatControl, argument: str) -> None:
    """Continue in a new session."""
    await chat.begin(argument)
    chat.say("new session; the last one is kept", "dim")


async def _is_unfinished(chat: ChatControl) -> bool:
    """Return whether the session has a turn or a message that was not finished."""
    log = chat.session.log
    unread = await chat.services.database.read(lambda db: turns.list_left_texts(db, log.session.id))
    try:
        return bool(unread) or await is_cut_off(log.writer, log.live)
    except NotFound:  # another program deleted the session
        return False


async def resume_session(chat: ChatControl, argument: str) -> None:
    """Continue the unfinished turn, or open another session."""
    if not argument:
        if await _is_unfinished(chat):
            chat.send(None)
            return
        picked = await selection_lists.pick_session(chat)
        if picked is None:
            chat.say("/resume ID opens one", "dim")
            return
        argument = picked
    session_id = await chat.services.database.read(lambda db: sessions.resolve_id(db, argument))
    if session_id == chat.session.id:
        raise NotFound("this session is open already")
    await chat.switch_to(await chat.opener.open_session(session_id, leaving=chat.session))


async def list_sessions(chat: ChatControl, argument: str) -> None:
    """List the latest sessions, or those whose title matches."""
    rows = await chat.services.database.read(
        lambda db: forks.order_as_trees(db, sessions.list_sessions(db, _LISTED, query=argument))
    )
    now = chat.services.clock.now()
    for row in rows:
        chat.say(wording.cut(tree_line(row, chat.session.id, now), chat.width()))
    if not rows:
        chat.say("there is no such session", "dim")


async def show_model(chat: ChatControl, argument: str) -> None:
    """Show the model; with a name, switch to it first."""
    if argument == "list":
        from whet.cli.interactive.own_programs import list_models  # noqa: PLC0415 - few chats ask for it

        return await list_models(chat)
    if argument:
        await chat.switch_model("" if argument == "default" else argument)
    info, account = chat.session.model, chat.services.models.settings.account
    by_account = f", account {account}" if account else ""
    chat.say(f"{info.model} ({info.provider}{by_account}), window {wording.count(info.window_tokens)} tokens")
    if chat.session.log.session.model_chosen:
        chat.say("chosen for this conversation; /model default goes back to the configured one", "dim")
    elif not argument:
        chat.say("/model NAME switches; /model list asks the server what it has", "dim")


async def show_accounts(chat: ChatControl, argument: str) -> None:
    """Show the provider's accounts; with a name, switch to it first."""
    from whet.app.model_links.accounts import account_lines, list_accounts  # noqa: PLC0415 - few have any

    models = chat.services.models
    if argument:
        await chat.opener.models.switch_account(chat.session, "" if argument == "default" else argument)
    for line in account_lines(list_accounts(models.settings)):
        chat.say(wording.printable(line))
    if not argument:
        chat.say("/account NAME switches; model.accounts in config.yaml names them", "dim")


async def list_tools(chat: ChatControl, argument: str) -> None:
    """List the session's tools."""
    tools = list(chat.session.tools.values())
    name_width = min(max((len(tool.name) for tool in tools), default=0), max(16, chat.width() // 3))
    for tool in tools:
        line = f"  {tool.name:<{name_width}}  {tool.spec.description}"
        chat.say(wording.cut(wording.printable(line), chat.width()))


async def show_usage(chat: ChatControl, argument: str) -> None:
    """Show the tokens and the cost of the session."""
    helpers = await chat.opener.services.database.read(lambda db: helper_usage(db, chat.session.id))
    usage = chat.session.usage + helpers
    cost = "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}" if usage.cost_usd else "nothing"
    if usage.estimated_tokens:
        cost += f", estimated: Whet counted {usage.estimated_tokens:,} of the tokens itself"
    chat.say(
        f"prompt {usage.prompt_tokens:,} tokens, {usage.cache_hit_ratio:.0%} of them from the cache\n"
        f"output {usage.output_tokens:,} tokens, {usage.reasoning_tokens:,} of them reasoning\n"
        f"cost {cost}"
    )


async def show_context(chat: ChatControl, argument: str) -> None:
    """Show how full the context window is."""
    session_id = chat.session.id
    sums = await chat.services.database.read(lambda db: compactions.sum_compactions(db, session_id))
    for line in report_lines(await chat.session.context.status(), sums, chat.session.usage, chat.width()):
        chat.say(wording.cut(wording.printable(line), chat.width()))


async def compress_context(chat: ChatControl, argument: str) -> None:
    """Compact the conversation."""

    async def compact(show: Callable[[Event], None]) -> None:
        for line in OUTCOMES[await chat.session.context.compact(argument, show)]:
            chat.say(line, "dim")

    chat.start_task("compacting", compact)


async def request_review(chat: ChatControl, argument: str) -> None:
    """Have the conversation reviewed."""
    await chat.services.reviews.get().queue_review(chat.session.id, argument)
    if chat.services.settings.review.worker == "off":
        chat.say("review queued; `whet worker --drain` runs it (review.worker is off)", "dim")
    else:
        chat.services.reviews.get().wake()
        chat.say("reviewing this conversation; /learned shows what came of it", "dim")


async def undo_turn(chat: ChatControl, argument: str) -> None:
    """Take the last turn back."""
    turn, text = await _take_back(chat, argument)
    chat.say(wording.clip(f"taken back: {fold_pastes(typed_text(text))}", chat.width()), "dim")
    chat.say(await describe_unrestored_files(chat, turn), "dim")


async def retry_turn(chat: ChatControl, argument: str) -> None:
    """Take the last turn back and send its message again."""
    _, text = await _take_back(chat, argument)
    session_id, now = chat.session.id, iso(chat.services.clock.now())
    await chat.services.database.write(lambda db: outcomes.record_signal(db, session_id, "retry", now))
    chat.send(text)


async def _take_back(chat: ChatControl, argument: str) -> tuple[int, str]:
    """Take the last turn back, and return its number and its message. Raises ConfigError if there is an
    argument: in the shell, `whet undo 12` undoes a learned change."""
    if argument:
        raise ConfigError(
            "only the last turn is taken back, so nothing may follow the command",
            hint="/rewind goes back to an earlier turn; /learned undo N takes a learned change back",
        )
    undone = await chat.session.log.undo_last_turn()
    if undone is None:
        raise NotFound("nothing has been said in this session yet")
    return undone


async def set_title(chat: ChatControl, argument: str) -> None:
    """Set the title if one is given, and show it."""
    if argument:
        await chat.session.log.details.set_title(argument)
    chat.say(chat.session.log.session.title or "this session has no title yet")


async def set_private(chat: ChatControl, argument: str) -> None:
    """Switch whether the session is searched and learned from."""
    private = _read_switch(argument, not chat.session.log.session.private)
    await chat.session.log.details.set_private(private)
    state = "private: not searched, not learned from" if private else "not private"
    chat.say(f"this session is {state}", "dim")


def _read_switch(text: str, default: bool) -> bool:
    if text not in ("", "on", "off"):
        raise ConfigError(f"{text!r} is neither on nor off")
    return text == "on" if text else default


async def export_session(chat: ChatControl, argument: str) -> None:
    """Write the session to a file, private to its owner. Another file that is there is replaced only with
    `--force` before its name."""
    from whet.cli.interactive.session_page import FORMATS  # noqa: PLC0415 - few chats are exported

    session_id = chat.session.id
    name = argument.removeprefix("--force ").strip()
    if name.startswith("--"):
        raise ConfigError(f"{name.split()[0]} is no option here", hint="/export [--force] FILE.html")
    path = chat.services.workspace / os.path.expanduser(name or f"{session_id}.md")
    if name and name == argument and path.exists():
        raise ConfigError(f"{path} is there already", hint=f"/export --force {name} replaces it")
    kind = {".json": "jsonl", ".htm": "html"}.get(path.suffix, path.suffix[1:])
    write = FORMATS.get(kind, FORMATS["md"])
    text = await chat.services.database.read(lambda db: "".join(write(db, session_id)))
    sandbox_folders = [Path(folder).expanduser() for folder in chat.services.settings.sandbox.write]
    try:
        replace_file(path, text.encode(), (chat.services.workspace, *sandbox_folders), new_mode=0o600)
    except OSError as error:
        why = explain_failure(error)
        raise NotFound(f"can't write {path}: {why}", hint="/export FILE names another") from error
    chat.say(f"written to {path}", "dim")


async def set_approvals(chat: ChatControl, argument: str) -> None:
    """Set the approval mode if one is given, and show it. Without an argument, also show what was allowed for
    this chat and for good. `revoke chat` and `revoke NUMBER` revoke it."""
    word, _, number_text = argument.partition(" ")
    gate = chat.services.gate.get()
    root = gate.root_of(chat.session.id)
    if argument == "revoke chat":
        gate.session_grants.revoke(root)
        chat.say("nothing is allowed for this chat any more")
        return
    if word == "revoke":
        number = parse_typed_number(number_text)
        if number is None or not await chat.services.database.write(lambda db: grants.remove(db, number)):
            raise NotFound(f"there is no grant {number_text[:40]!r}", hint="/approvals lists them")
        chat.say(f"grant {number} no longer holds")
        return
    is_list = argument in ("", "list")
    lines: list[str] = []
    if not is_list:
        if argument not in modes.ABOUT:
            raise ConfigError(f"there is no mode {argument!r}", hint="ask, plan, auto or deny")
        lines = await modes.set_mode(chat.services, chat.session.id, argument)
    mode = modes.read_mode(chat.services, chat.session.id)
    chat.say("\n".join((f"approvals: {mode} ({modes.ABOUT[mode]})", *lines)))
    if not is_list:
        return
    rows = await chat.services.database.read(grants.list_grants)
    for row in rows:
        chat.say(
            wording.printable(f"{row.id:>4}  {row.tool}  {row.pattern}  {row.workspace or 'everywhere'}")
        )
    session_grants = gate.session_grants.list_grants(root)
    for grant in session_grants:
        chat.say(wording.printable(f"chat  {grant.tool}  {grant.pattern}  until you quit"))
    if rows or session_grants:
        chat.say("take back: /approvals revoke NUMBER, or /approvals revoke chat", "dim")


async def edit_plan(chat: ChatControl, argument: str) -> None:
    """Make, show, change or approve a plan."""
    from whet.app import planning  # noqa: PLC0415 - few sessions plan

    reply = await planning.run_command(chat.services, chat.session.id, argument)
    chat.say(reply.text)
    if reply.message:
        chat.send(reply.message)


async def copy_answer(chat: ChatControl, argument: str) -> None:
    """Copy the last answer to the clipboard."""
    parts = list_parts(chat.session.log.messages)
    text = next((part.text for part in reversed(parts) if isinstance(part, AnswerPart) and part.text), "")
    if not text:
        raise NotFound("nothing has been answered in this session yet")
    data = base64.b64encode(mask(text).encode()).decode()
    chat.put_out(f"\x1b]52;c;{data}\x07")
    chat.say(f"copied {len(text):,} characters, if your terminal lets programs copy (OSC 52)", "dim")


async def leave_chat(chat: ChatControl, argument: str) -> None:
    """End the chat."""
    chat.leave()


def add_plugin_commands(plugins: PluginParts | None, commands: Commands[ChatControl]) -> list[str]:
    """Add the plugins' commands after the built-in ones. Returns a line for each name that was refused."""
    refused: list[str] = []
    for command in plugins.loaded.commands if plugins else ():
        run = _make_plugin_handler(command.name)
        try:
            commands.add(SlashCommand(command.name, command.description, run, argument=command.args_hint))
        except WhetError as error:
            refused.append(f"plugin {command.plugin}: {error.message}")
    return refused


def _make_plugin_handler(name: str) -> Callable[[ChatControl, str], Coroutine[Any, Any, None]]:
    async def run(chat: ChatControl, argument: str) -> None:
        parts = chat.services.plugins
        plugins = None if parts is None else parts.loaded
        # If the command belongs to a context engine, use the engine of this session, which has its data.
        engine = chat.services.contexts.host(chat.session.context).runner.engine
        command = plugins.find_command(name, engine) if plugins else None
        if plugins is None or command is None:
            return
        row = chat.session.log.session
        with plugins.scope(row.id, row.conversation_id):
            reply = await command.run(argument)
        if reply:
            chat.say(reply)

    return run
