"""The connected editor, with its connection and its capabilities."""

from __future__ import annotations

from acp import Client
from acp.schema import ClientCapabilities, ElicitationCapabilities, FileSystemCapabilities

from whet.editors.outbox import Outbox


class Editor:
    """One editor.

    `reads` and `writes` are True if it provides and accepts the text of files that it has open, `forms` if
    it can show questions with fields. All are False until `set_capabilities` is called.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outbox: Outbox = Outbox(client)
        self.reads: bool = False
        self.writes: bool = False
        self.forms = False

    def set_capabilities(self, capabilities: object) -> None:
        """Store the capabilities that the editor reported. Malformed ones, which the SDK passes, are
        ignored."""
        if not isinstance(capabilities, ClientCapabilities):
            return
        files: object = capabilities.fs
        if isinstance(files, FileSystemCapabilities):
            self.reads = files.read_text_file is True
            self.writes = files.write_text_file is True
        elicitation: object = capabilities.elicitation
        self.forms: bool = isinstance(elicitation, ElicitationCapabilities) and elicitation.form is not None
