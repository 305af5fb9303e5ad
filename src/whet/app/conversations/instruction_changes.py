"""Find instructions of folders below the workspace that a command may have written since the first session.

They reach the model when a call touches their folder, so the prompt of the last session does not have them.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import apsw

from whet.store import frozen_texts, sessions
from whet.store.database import StateDatabase


async def is_new_to_person(database: StateDatabase, workspace: Path, path: Path, text: str) -> bool:
    """Return whether an instruction file has changed since the first session of the workspace, and this is
    the first call for its present text. Durable on return."""
    started = await database.read(lambda db: sessions.read_first_start(db, str(workspace)))
    # The time of a file's last change can't be set back by a command, as that of its contents can.
    changed_s = max(os.stat(path).st_ctime, os.lstat(path).st_ctime)
    if not started or changed_s < datetime.fromisoformat(started).timestamp():
        return False
    named_text = f"{path}\n{text}"

    def claim(connection: apsw.Connection) -> bool:
        if frozen_texts.is_frozen(connection, named_text):
            return False
        frozen_texts.freeze(connection, named_text, "")
        return True

    return await database.write(claim)
