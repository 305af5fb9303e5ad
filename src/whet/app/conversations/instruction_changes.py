"""Find instructions of folders below the workspace that a command may have written since the first session.

They reach the model when a call touches their folder, so the prompt of the last session does not have them.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from whet.store.database import StateDatabase


async def is_new_to_person(database: StateDatabase, workspace: Path, path: Path, text: str) -> bool:
    """Return whether an instruction file has changed since the first session of the workspace, and this is
    the first call for its present text. Durable on return."""
    # imported here because few folders have instructions
    from whet.store import named_instructions  # noqa: PLC0415

    started = await database.read(lambda db: named_instructions.read_first_start(db, str(workspace)))
    # The time of a file's last change can't be set back by a command, as that of its contents can.
    changed_s = max(os.stat(path).st_ctime, os.lstat(path).st_ctime)
    if not started or changed_s < datetime.fromisoformat(started).timestamp():
        return False
    return await database.write(lambda db: named_instructions.claim_text(db, f"{path}\n{text}"))
