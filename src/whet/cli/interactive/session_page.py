"""Export a session as JSON lines, Markdown, or a single HTML page without scripts.

The page uses the dashboard's templates, which mask secrets and escape all foreign text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files

import apsw

from whet.serve.board.filters import FILTERS
from whet.serve.board.page_messages import list_page_messages
from whet.store import sessions
from whet.store.export import as_jsonl, as_markdown
from whet.store.rows import SEQ_LIMIT
from whet.web.assets import Assets
from whet.web.pages import SiteTemplates

_PACKAGE = "whet.serve.board"
_STYLES = (("whet.web", "base.css"), (_PACKAGE, "site.css"))


def as_html(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    """Yield the conversation as a page. Raises NotFound."""
    row = sessions.get(connection, session_id)
    messages = list_page_messages(connection, session_id, 1, SEQ_LIMIT)
    undone = {row.entry.turn for row in messages if row.starts_turn and row.starts_turn.is_undone}
    entries = [row for row in messages if row.entry.turn not in undone]
    css = "".join((files(package) / "static" / name).read_text("utf-8") for package, name in _STYLES)
    templates = SiteTemplates(_PACKAGE, Assets(files(_PACKAGE) / "static"), FILTERS)
    yield templates.html("export.html", row=row, entries=entries, css=css)


def _as_json_lines(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    return (line + "\n" for line in as_jsonl(connection, session_id))


FORMATS: dict[str, Callable[[apsw.Connection, str], Iterator[str]]] = {
    "md": as_markdown,
    "html": as_html,
    "jsonl": _as_json_lines,
}
"""The export formats of a session."""
