"""A session as a file: JSON lines, Markdown, or one HTML page without scripts and other files.

The HTML page shows messages with the templates of the dashboard, in which secrets are masked and all foreign
text is escaped.
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
    """Yield the conversation as a page, with each call folded. Raises NotFound."""
    row = sessions.get(connection, session_id)
    messages = list_page_messages(connection, session_id, 1, SEQ_LIMIT)
    undone = {one.entry.turn for one in messages if one.starts_turn and one.starts_turn.is_undone}
    entries = [one for one in messages if one.entry.turn not in undone]
    css = "".join((files(package) / "static" / name).read_text("utf-8") for package, name in _STYLES)
    templates = SiteTemplates(_PACKAGE, Assets(files(_PACKAGE) / "static"), FILTERS)
    yield templates.html("export.html", row=row, entries=entries, css=css)


def _lines(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    return (line + "\n" for line in as_jsonl(connection, session_id))


FORMATS: dict[str, Callable[[apsw.Connection, str], Iterator[str]]] = {
    "md": as_markdown,
    "html": as_html,
    "jsonl": _lines,
}
"""The export formats of a session."""
