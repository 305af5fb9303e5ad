"""Output of commands: tables that fit the terminal, JSON, ages, sizes.

It does without rich, which takes long to import. Colour is used only if stdout is a terminal and NO_COLOR is
unset.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import click
import msgspec

from whet.clock import Clock, local_time
from whet.contract.messages import Usage
from whet.contract.texts import round_amounts
from whet.log import mask
from whet.terminal.wording import clip, count_columns, printable_styled

_GAP = 2
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


R = TypeVar("R")
json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object."
)


def number_option(
    *names: str, least: int, default: float, help: str, most: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a number within bounds. It takes whole numbers only if the default is an int."""
    is_whole = isinstance(default, int)
    kind = click.IntRange(least, most) if is_whole else click.FloatRange(least, most)
    return click.option(*names, type=kind, default=default, show_default=True, help=help)


def home_and_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the home to a command as its first argument, and `--json` as `as_json`."""
    return json_option(click.pass_obj(command))


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A table's column.

    `cell` returns a row's text. If the table is too wide, columns that can `grows` are narrowed, but not
    below `least` columns, and those with the highest `rank` are dropped first.
    """

    title: str
    cell: Callable[[R], str]
    grows: bool = False
    right: bool = False
    rank: int = 0
    least: int = 12


def emit_json(value: object, *, masks: bool = True) -> None:
    """Print one JSON document and nothing else, with secrets masked unless `masks` is False."""
    value = round_amounts(msgspec.to_builtins(value, str_keys=True))
    if masks:
        value = _mask_texts(value)
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _mask_texts(value: object) -> object:
    """Return a JSON value with secrets masked in each text."""
    match value:
        case str():
            return mask(value)
        case list():
            return [_mask_texts(item) for item in cast("list[object]", value)]
        case dict():
            return {key: _mask_texts(item) for key, item in cast("dict[str, object]", value).items()}
        case _:
            return value


def emit(facts: object, text: str, *, as_json: bool, masks: bool = True) -> None:
    """Print a command's result: `facts` as JSON, or `text` without control sequences. Secrets are masked
    unless `masks` is False, as for a token that is shown once."""
    if as_json:
        return emit_json(facts, masks=masks)
    click.echo(printable_styled(mask(text) if masks else text))


def emit_rows(
    rows: Sequence[R], columns: Sequence[Column[R]], facts: object, *, none: str, as_json: bool
) -> None:
    """Print the rows of a list command: `facts` as JSON, or a table, or `none` if there are no rows."""
    if as_json:
        return emit_json(facts)
    click.echo(printable_styled(table(rows, columns) if rows else none))


def _terminal_size() -> os.terminal_size:
    from shutil import get_terminal_size  # noqa: PLC0415 - brings bz2 and lzma, 4 ms

    return get_terminal_size((80, 24))


def terminal_width() -> int:
    """Return the terminal's width (or COLUMNS), 80 if there is no terminal, at least 20."""
    return max(20, _terminal_size().columns)


def has_colour() -> bool:
    """Return whether stdout is a terminal that may be coloured."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_text(text: str, style: str) -> str:
    """Return `text` in a style (bold, dim, red, green, yellow) if colour is allowed."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_colour() else text


def table(items: Sequence[R], columns: Sequence[Column[R]], *, width: int = 0) -> str:
    """Lay out one line per item in at most `width` columns (0: the terminal's width)."""
    width = width or terminal_width()
    rows = [[mask(column.cell(item)) for column in columns] for item in items]
    visible = _visible_columns(columns, rows, width)
    widths = {index: _natural_key(columns, rows, index) for index in visible}
    spare = width - sum(widths.values()) - _GAP * (len(visible) - 1)
    for index in reversed(visible):
        if columns[index].grows and spare < 0:
            narrowed = max(min(columns[index].least, widths[index]), widths[index] + spare)
            spare += widths[index] - narrowed
            widths[index] = narrowed
    lines = [style_text(_line(columns, [column.title for column in columns], widths), "bold")]
    lines += [_line(columns, row, widths) for row in rows]
    return "\n".join(lines)


def _natural_key(columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]], index: int) -> int:
    return max(count_columns(text) for text in [columns[index].title, *(row[index] for row in rows)])


def _visible_columns(columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    visible = list(range(len(columns)))

    def narrowest(index: int) -> int:
        natural = _natural_key(columns, rows, index)
        return min(natural, columns[index].least) if columns[index].grows else natural

    while len(visible) > 1 and sum(map(narrowest, visible)) + _GAP * (len(visible) - 1) > width:
        droppable = max(visible, key=lambda index: columns[index].rank)
        if columns[droppable].rank == 0:
            break
        visible.remove(droppable)
    return visible


def _line(columns: Sequence[Column[Any]], row: Sequence[str], widths: dict[int, int]) -> str:
    cells: list[str] = []
    for index, width in widths.items():
        text = clip(row[index], width)
        space = " " * (width - count_columns(text))
        cells.append(space + text if columns[index].right else text + space)
    return (" " * _GAP).join(cells).rstrip()


def fit(text: str) -> str:
    """Return `text` as one line, cut to the terminal's width."""
    return clip(text, terminal_width())


def wrap_width() -> int:
    """Return the width to break text at: the terminal's or COLUMNS, or sys.maxsize if stdout is a pipe or a
    file and COLUMNS is unset."""
    is_wrapped = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return terminal_width() if is_wrapped else sys.maxsize


def wrap_text(text: str, *, indent: int = 0, width: int = 0) -> str:
    """Break `text` at spaces into indented lines of at most `width` columns (0: `wrap_width()`)."""
    width = (width or wrap_width()) - indent
    lines = [""]
    for word in mask(text).split():
        if lines[-1] and count_columns(lines[-1]) + 1 + count_columns(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(" " * indent + line for line in lines)


def age(moment: str, now: datetime) -> str:
    """Return how long ago a stored time (ISO, UTC) was: now, 5 m, 3 h, 2 d, then the date."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return "?"
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = (now - then).total_seconds()
    if seconds < 60:
        return "now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} m ago"
    if seconds < 86_400:
        return f"{seconds // 3600:.0f} h ago"
    if seconds < 30 * 86_400:
        return f"{seconds // 86_400:.0f} d ago"
    return local_time(then).strftime("%Y-%m-%d")


def size(size_bytes: int) -> str:
    """Format a size: 812 B, 3.4 KB, 1.5 GB."""
    amount = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def cost(usd: float | None, *, is_estimate: bool = False) -> str:
    """Format a cost: $0.0123, $4.20, ~$4.20 if some tokens are estimated, or ? if a price is unknown."""
    if usd is None:
        return "?"
    mark = "~" if is_estimate else ""
    return f"{mark}${usd:.4f}" if 0 < usd < 0.1 else f"{mark}${usd:.2f}"


def usage_cost(usage: Usage) -> str:
    """Format the cost of some usage."""
    return cost(usage.cost_usd, is_estimate=bool(usage.estimated_tokens))


def print_long(text: str, *, masks: bool = True) -> None:
    """Print `text`, in the pager if it is longer than the terminal. Secrets are masked unless `masks` is
    False."""
    text = mask(text) if masks else text
    height = _terminal_size().lines
    if sys.stdout.isatty() and text.count("\n") >= height - 1:
        click.echo_via_pager(text)
    else:
        click.echo(text)


class ProgressLine:
    """A progress line on stderr for a task that takes more than a second. Without a terminal, nothing is
    shown."""

    def __init__(self, label: str, clock: Clock) -> None:
        self._label = label
        self._clock = clock
        self._next_s = clock.monotonic_s() + 1.0
        self._is_shown = False

    def update(self, progress: str) -> None:
        """Show the progress, at most five times a second."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s or not sys.stderr.isatty():
            return
        self._next_s = now_s + 0.2
        self._is_shown = True
        click.echo(f"\r{self._label}: {progress}\x1b[K", err=True, nl=False)

    def finish(self) -> None:
        """Clear the line."""
        if self._is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)
