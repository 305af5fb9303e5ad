"""The connected editor: its connection and its capabilities. Independent of sessions."""

from __future__ import annotations

from acp import Client
from acp.schema import ClientCapabilities, ElicitationCapabilities, FileSystemCapabilities

from whet.editors.outbox import Outbox


class Editor:
    """One editor.

    `reads` and `writes`: it provides and accepts the text of files that it has open. `forms`: it can show
    questions with fields. Until `learn` is called, all are False.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outbox: Outbox = Outbox(client)
        self.reads: bool = False
        self.writes: bool = False
        self.forms = False

    def learn(self, capabilities: object) -> None:
        """Store the capabilities that the editor reported. The SDK leaves malformed ones unparsed; they are
        ignored."""
        if not isinstance(capabilities, ClientCapabilities):
            return
        files: object = capabilities.fs
        if isinstance(files, FileSystemCapabilities):
            self.reads = files.read_text_file is True
            self.writes = files.write_text_file is True
        questions: object = capabilities.elicitation
        self.forms: bool = isinstance(questions, ElicitationCapabilities) and questions.form is not None
