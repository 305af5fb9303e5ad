"""The built-in slash commands.

Each is a few lines on what the chat offers (`ChatControl`), the session and the store. It does not know how
the terminal works.
"""

from __future__ import annotations

from typing import Protocol

from whet.agent.session import Session
from whet.app.build import App
from whet.cli import wording
from whet.cli.slash import Commands
from whet.config.schema import ApprovalMode
from whet.contract.errors import NotFound

_MODES: tuple[ApprovalMode, ...] = ("ask", "auto", "deny")
_LISTED = 12


class ChatControl(Protocol):
    """What a command may do with the chat."""

    app: App
    session: Session

    @property
    def commands(self) -> Commands[ChatControl]:
        """Every command, plugins' ones included."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Show text of ours."""
        ...

    def width(self) -> int:
        """The columns of the terminal."""
        ...

    def send(self, text: str | None) -> None:
        """Start a turn with a message, or go on with the unfinished one (None)."""
        ...

    async def switch_to(self, session: Session) -> None:
        """Talk in another session from now on; the old one stays stored."""
        ...

    def leave(self) -> None:
        """End the chat."""
        ...


async def _help(chat: ChatControl, rest: str) -> None:
    rows = [(f"/{command.name} {command.argument}".rstrip(), command) for command in chat.commands]
    wide = max(len(label) for label, _ in rows)
    for label, command in rows:
        also = "".join(f", /{alias}" for alias in command.aliases)
        chat.say(wording.cut(f"  {label:<{wide}}  {command.help}{also}", chat.width()))
    chat.say(
        "\nAlt-Enter or a trailing \\ starts a new line, @ completes a file name, //x sends /x.\n"
        "Typed text reaches a running turn before its next step; Ctrl-C stops the turn.",
        "dim",
    )


async def _new(chat: ChatControl, rest: str) -> None:
    await chat.switch_to(await chat.app.new_session(title=rest))
    chat.say("new session; the last one is kept, /resume lists what there is", "dim")


async def _resume(chat: ChatControl, rest: str) -> None:
    if not rest and await chat.session.log.unfinished_turn() is not None:
        chat.send(None)
        return
    if not rest:
        await _sessions(chat, "")
        chat.say("/resume ID opens one", "dim")
        return
    await chat.switch_to(await chat.app.open_session(rest))


async def _sessions(chat: ChatControl, rest: str) -> None:
    raise NotFound("x")


async def _model(chat: ChatControl, rest: str) -> None:
    if rest:
        await chat.app.switch_model(chat.session, rest)
    info = chat.session.model
    chat.say(f"{info.model} ({info.provider}), window {wording.count(info.window_tokens)} tokens")
    if not rest:
        chat.say("/model NAME switches; `whet model list` asks the server what it has", "dim")


async def _tools(chat: ChatControl, rest: str) -> None:
    names = list(chat.session.tools.values())
    wide = max((len(tool.name) for tool in names), default=0)
    for tool in names:
        line = f"  {tool.name:<{wide}}  {tool.spec.description}"
        chat.say(wording.cut(wording.printable(line), chat.width()))


async def _usage(chat: ChatControl, rest: str) -> None:
    usage = chat.session.usage
    cost = "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    chat.say(
        f"prompt {usage.prompt_tokens:,} tokens, {usage.cache_hit_ratio:.0%} of them from the cache\n"
        f"output {usage.output_tokens:,} tokens, {usage.reasoning_tokens:,} of them reasoning\n"
        f"cost {cost}"
    )


async def _undo(chat: ChatControl, rest: str) -> None:
    text = await chat.session.log.undo_last_turn()
    chat.say(f"taken back: {wording.clip(text, chat.width() - 12)}", "dim")


async def _retry(chat: ChatControl, rest: str) -> None:
    chat.send(await chat.session.log.undo_last_turn())


async def _title(chat: ChatControl, rest: str) -> None:
    if rest:
        await chat.session.log.set_title(rest)
    chat.say(chat.session.log.session.title or "this session has no title yet")


async def _quit(chat: ChatControl, rest: str) -> None:
    chat.leave()
