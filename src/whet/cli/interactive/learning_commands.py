"""The slash commands /memory, /skills, /inbox, and each skill by its own name.

A skill's text is sent inside a marked <skill> tag, so that it does not count as the person's own words, and
its use is recorded. In /inbox, people see and decide on their own changes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.app.peer_words import SLASH_WORDS, find_meaning
from whet.cli.command_table import COMMANDS
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError, NotFound
from whet.contract.origin import Origin
from whet.contract.texts import parse_typed_number
from whet.memory import skill_store
from whet.memory.undo import refuse_if_decided
from whet.memory.whole_change import digest_changes
from whet.store import lesson_counts
from whet.store.ledger import LedgerRow
from whet.terminal.wording import cut, printable

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl

_LISTED = 40
_SHOWN = 20
_TEXT_CHARS = 300
_USAGE = "/inbox, /inbox all, /inbox NUMBER, /inbox accept NUMBER, /inbox reject NUMBER"


async def show_memory(chat: ChatControl, arguments: str) -> None:
    """Show what is remembered."""
    files = await chat.learning.reader.read_notes()
    if not any(file.entries for file in files):
        chat.say("nothing is remembered yet; say: remember that ...", "dim")
    for file in files:
        if file.entries:
            chat.say(printable(f"{file.text.strip()}\n({file.used})"))
        if file.held_in:
            from whet.memory.note_folders import describe_groups  # noqa: PLC0415 - most homes have no such notes

            chat.say(printable("\n".join(describe_groups(file.held_in))), "dim")
        if file.left_out:
            chat.say(printable(file.left_out), "yellow")
        if file.trouble:
            chat.say(printable(f"problem: {file.trouble}"), "yellow")
    chat.say("/learned all lists the changes, /learned NUMBER says who wrote what and why", "dim")


async def list_skills(chat: ChatControl, words: str) -> None:
    """List the skills, or those that match."""
    infos = chat.learning.library.all()
    matches = skill_store.search(infos, words) if words else infos
    name_width = max((len(info.name) for info in matches[:_LISTED]), default=0)
    for info in matches[:_LISTED]:
        summary = f"can't be used: {info.problem}" if info.problem else info.description
        chat.say(cut(printable(f"  /{info.name:<{name_width}}  {summary}"), chat.width()))
    if len(matches) > _LISTED:
        chat.say(f"  and {len(matches) - _LISTED} more; /skills WORDS finds them", "dim")
    if not matches:
        chat.say("no skill fits", "dim")


async def run_with_argument(chat: ChatControl, name: str, argument: str) -> bool:
    """Run `whet NAME ARGUMENT` if the argument begins with a subcommand of `whet NAME`, as in `/memory add
    TEXT`. Returns whether it does. /undo has none: it differs from `whet undo`."""
    if name not in COMMANDS:
        return False
    import click  # noqa: PLC0415 - few are typed

    from whet.cli.group import whet  # noqa: PLC0415 - few are typed

    context = click.Context(whet)
    group = whet.get_command(context, name)
    if not isinstance(group, click.Group) or argument.split()[0] not in group.list_commands(context):
        return False
    from whet.cli.interactive.own_programs import run_at_terminal  # noqa: PLC0415 - few are typed

    await run_at_terminal(chat, name, argument)
    return True


async def run_skill(chat: ChatControl, name: str, arguments: str) -> None:
    """Send the text of the prompt file or skill of that name. Raises NotFound if neither exists."""
    from whet.app.conversations.own_commands import find_prompt_command  # noqa: PLC0415 - few are typed

    prompt = find_prompt_command(name, chat.services.home.root, chat.session.workspace)
    if prompt is not None:
        chat.send(prompt.message(arguments))
        return
    learning = chat.learning
    if learning.library.find(name) is None:
        if name in COMMANDS and not find_meaning(name, SLASH_WORDS):
            from whet.cli.interactive.own_programs import run_at_terminal  # noqa: PLC0415 - few are typed

            await run_at_terminal(chat, name, arguments)
            return
        chat.commands.get(name)  # raises NotFound with a similar name
    origin = Origin("user", session_id=chat.session.id, platform=chat.services.source)
    load = await learning.skills.view(name, "", origin, how="slash")
    if not load.ok:
        raise NotFound(load.text)
    request = arguments or f"Follow the skill {name} for what we are working on."
    chat.send(f"{request}\n\n" + wrap_in_tag("skill", f"\nThe skill {name}:\n{load.text}\n"))


async def handle_inbox(chat: ChatControl, arguments: str) -> None:
    """List the changes that wait or were refused, show one, or accept or reject some."""
    if (number := parse_typed_number(arguments)) is not None:
        await _show_whole(chat, await chat.learning.get_change(number))
        return
    if arguments not in ("", "all"):
        await _decide(chat, *arguments.split())
        return
    profile, database = chat.learning.profile, chat.learning.database
    rows: list[LedgerRow] = await database.read(lambda db: lesson_counts.list_waiting(db, profile))
    refused: list[LedgerRow] = await database.read(lambda db: lesson_counts.list_refusals(db, profile))
    await database.append(lambda db: lesson_counts.take_unread(db, profile))
    if not rows and not refused:
        chat.say("nothing waits for you, and nothing was refused", "dim")
    for title, changes in (("waits for you", rows), ("refused", refused)):
        for row in changes if arguments else changes[:_SHOWN]:
            _show(chat, title, row)
        if len(changes) > _SHOWN and not arguments:
            chat.say(f"and {len(changes) - _SHOWN} more: /inbox all", "dim")
    if decidable := [*rows, *(row for row in refused if row.kind == "memory")]:
        chat.say(f"/inbox accept {decidable[0].id} takes it, /inbox reject {decidable[0].id} drops it", "dim")


def _show(chat: ChatControl, title: str, row: LedgerRow) -> None:
    text = " ".join((row.after or f"removes: {row.before}").split())[:_TEXT_CHARS]
    chat.say(printable(f"{row.id} {title} ({row.kind} {row.item}): {text}"))
    if row.reason:
        chat.say(printable(f"  because: {row.reason}"), "dim")


async def _show_whole(chat: ChatControl, row: LedgerRow) -> None:
    """Show everything that accepting a change would write, and the command that accepts exactly that."""
    await chat.page(f"{await chat.learning.describe_whole(row)}\n")
    chat.say(
        f"/inbox accept {row.id} {_mark(row)} takes exactly this, /inbox reject {row.id} drops it", "dim"
    )


def _mark(row: LedgerRow) -> str:
    return f"={digest_changes([row])[:8]}"


async def _decide(chat: ChatControl, word: str, *numbers: str) -> None:
    mark = numbers[1] if word == "accept" and len(numbers) == 2 and numbers[1].startswith("=") else ""
    ids = [parse_typed_number(text) for text in numbers[: 1 if mark else None]]
    if word not in ("accept", "reject") or not ids or None in ids:
        raise ConfigError(f"/inbox knows no {' '.join((word, *numbers))[:40]!r}", hint=_USAGE)
    if word == "accept":
        for row in await chat.learning.accept_all(
            await _list_shown(chat, [number or 0 for number in ids], mark)
        ):
            _say_decided(chat, row)
        return
    for number in ids:
        _say_decided(chat, await chat.learning.reject(number or 0))


def _say_decided(chat: ChatControl, row: LedgerRow) -> None:
    result = {"active": "in force", "rejected": "dropped"}.get(row.state, f"{row.state} ({row.reason})")
    chat.say(printable(f"{row.id} {row.kind} {row.item}: {result}"))


async def _list_shown(chat: ChatControl, ids: Sequence[int], mark: str) -> list[int]:
    """Return the ids of the changes that the person has seen in full. Shows the others in full."""
    shown_ids: list[int] = []
    for number in ids:
        row = await chat.learning.get_change(number)
        refuse_if_decided(row)
        is_shown = not row.changes and len(row.after or row.before) <= _TEXT_CHARS
        is_shown = is_shown and not (row.before and row.after)
        if mark == _mark(row) or (is_shown and not mark):
            shown_ids.append(number)
        else:
            await _show_whole(chat, row)  # `/inbox` shows only the beginning of it
    return shown_ids
