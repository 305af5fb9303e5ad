"""The editor at the other end: the way to it, and what it said it can do. It knows no sessions."""

from __future__ import annotations

from acp import Client
from acp.schema import ClientCapabilities, ElicitationCapabilities, FileSystemCapabilities

from whet.editors.outbox import Outbox


class Editor:
    """One editor. `reads` and `writes`: it has files open, and gives and takes their text; `forms`: it puts
    questions with fields. Until `learn` it can do none of that."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outbox: Outbox = Outbox(client)
        self.reads: bool = False
        self.writes: bool = False
        self.forms = False

    def learn(self, said: object) -> None:
        """Take what the editor said of itself. The SDK leaves what is malformed as it came: as not said."""
        if not isinstance(said, ClientCapabilities):
            return
        files: object = said.fs
        if isinstance(files, FileSystemCapabilities):
            self.reads = files.read_text_file is True
            self.writes = files.write_text_file is True
        questions: object = said.elicitation
        self.forms: bool = isinstance(questions, ElicitationCapabilities) and questions.form is not None
