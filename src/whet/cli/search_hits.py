"""Print the results of `whet sessions search`, in the owner's time zone and with secrets masked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from whet.clock import iso, local_day, local_zone, read_zone
from whet.log import mask
from whet.store import search as index
from whet.terminal import output
from whet.terminal.wording import cut, printable


def begin_of_day(date: str | None) -> str | None:
    """Return when a day begins in the owner's time zone, as an ISO time. Other text is returned unchanged."""
    if date is None:
        return None
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return date
    return iso(moment if moment.tzinfo else moment.replace(tzinfo=read_zone(local_zone())))


def mask_hit(hit: index.Hit) -> index.Hit:
    """Return a hit with secrets in its snippet masked. Marks of matching words inside a secret would hide it
    from `mask`, so a snippet with a secret loses its marks."""
    text = hit.snippet.replace(index.MARK_OPEN, "").replace(index.MARK_CLOSE, "")
    masked_text = mask(text)
    return hit if masked_text == text else msgspec.structs.replace(hit, snippet=masked_text)


def print_hits(hits: Sequence[index.Hit]) -> None:
    """Print each hit's session, day, role and title, and its snippet."""
    for hit in hits:
        title = printable(mask(hit.title)) or "(untitled)"
        head = f"{hit.session_id}  {local_day(hit.when)}  {hit.role}  {title}"
        click.echo(output.style_text(cut(head, output.terminal_width()), "bold"))
        click.echo(output.wrap_text(_highlight(printable(hit.snippet)), indent=2))


def _highlight(snippet: str) -> str:
    if not output.has_colour():
        return snippet
    return snippet.replace(index.MARK_OPEN, "\x1b[1;33m").replace(index.MARK_CLOSE, "\x1b[0m")
