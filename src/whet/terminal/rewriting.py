"""Let the person edit a call before it runs, in their editor: its command, its file or its arguments.

The caller must release the terminal while the editor runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from whet.amending import apply_edit, find_editable
from whet.contract.protocols import ApprovalRequest
from whet.terminal.editor import edit_bytes


def rewrite(request: ApprovalRequest, environ: Mapping[str, str]) -> dict[str, object] | None:
    """Let the person edit the call, and return its new arguments, or None if they changed nothing.

    Blocks while the editor runs. Raises ConfigError if there is no editor, or if the saved text can't be
    parsed.
    """
    editable = find_editable(request)
    content = editable.text.encode("utf-8", "surrogateescape")
    edited = edit_bytes(content, editable.suffix, environ)
    return apply_edit(request, edited.decode("utf-8", "surrogateescape"))
