"""The slash commands /rewind and /diff, at the terminal and in chats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.cli.interactive.recorded_steps import changed_paths, open_rewinding
from whet.cli.interactive.selection_lists import pick_point
from whet.contract.errors import ConfigError
from whet.contract.texts import parse_typed_number
from whet.terminal.wording import exact

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl
    from whet.rewind.rewinding import Point
    from whet.store.rewinds import Parts

_PARTS: dict[str, Parts] = {"files": "files", "conversation": "conversation", "both": "both"}
_USAGE = "/rewind TURN[.STEP] [files|conversation|both] [keep|force] [dry-run], or /rewind undo"
_SHOWN_LINES = 200


async def describe_unrestored_files(chat: ChatControl, turn: int) -> str:
    """Return a sentence on the files of a turn that was taken back from the conversation."""
    if not chat.services.settings.rewind.record:
        return "its files were not restored: nothing is recorded (rewind.record is off)"
    if not (await changed_paths(chat)).get(turn):
        return "it changed no files"
    return f"its files were not restored; /rewind {turn} files does that, /diff {turn} shows them"


async def rewind_session(chat: ChatControl, arguments: str) -> None:
    """Go back to a point. Without one, let the person pick a message; if they pick none, list the points."""
    from whet.cli.interactive import rewind_report  # noqa: PLC0415 - with all that rewinding needs

    rewinding = open_rewinding(chat)
    words = [word.removeprefix("--") for word in arguments.split()]
    if not words:
        if await pick_point(chat):
            return
        lines = rewind_report.points(await rewinding.steps())
        for line in lines or ["no step of this session has changed files"]:
            chat.say(line)
        chat.say(_USAGE, "dim")
        return
    point, parts, flags = _parse_words(words)
    force, is_dry_run = "force" in flags, "dry-run" in flags
    result = await rewinding.preview(point, parts, force=force)
    must_ask = not flags and bool(result.forceable_conflicts)
    if not (is_dry_run or must_ask):
        result = await rewinding.rewind(point, parts, force=force)
    for line in rewind_report.outcome(result, is_plan=is_dry_run or must_ask):
        chat.say(line)
    if must_ask:
        again = f"/rewind {' '.join(words)}"
        chat.say(
            "files were changed since by somebody else, so nothing was done:"
            f" {again} keep leaves those as they are, {again} force sets them back, too"
        )
    elif not is_dry_run:
        chat.say("/rewind undo takes this back", "dim")


async def show_diff(chat: ChatControl, arguments: str) -> None:
    """Show what a turn changed in the files."""
    from whet.cli.interactive import rewind_report  # noqa: PLC0415

    turn = parse_typed_number(arguments)
    if arguments and turn is None:
        raise ConfigError(f"{arguments[:40]!r} is not a turn", hint="/diff, or /diff 3")
    rewinding = open_rewinding(chat)
    turn = await rewinding.last_changed_turn() if turn is None else turn
    diffs = await rewinding.diff(turn) if turn else []
    if not diffs:
        chat.say("no file was changed" if turn else "no turn of this session has changed files", "dim")
        return
    lines = [line for file_diff in diffs for line in file_diff.lines]
    for line in lines[:_SHOWN_LINES]:
        chat.say(exact(line), _STYLES.get(line[:1], ""))
    if len(lines) > _SHOWN_LINES:
        chat.say(f"... {len(lines) - _SHOWN_LINES} lines more; `whet diff` shows them all", "dim")
    for line in rewind_report.summary(diffs):
        chat.say(line)


_STYLES = {"+": "green", "-": "red"}


def _parse_words(words: list[str]) -> tuple[Point | None, Parts, set[str]]:
    from whet.rewind.rewinding import parse_point  # noqa: PLC0415

    point = parse_point(words[0])
    if point is None and words[0] != "undo":
        raise ConfigError(f"{words[0]!r} is not a point", hint=_USAGE)
    parts: Parts = "both"
    flags: set[str] = set()
    for word in words[1:]:
        if word in _PARTS:
            parts = _PARTS[word]
        elif word in ("keep", "force", "dry-run"):
            flags.add(word)
        else:
            raise ConfigError(f"{word!r} is not understood", hint=_USAGE)
    return point, parts, flags
