"""The folders of the project that a workspace lies in: from its repository's root down to the workspace."""

from __future__ import annotations

import os
from pathlib import Path

SKILL_FOLDERS = (".agents/skills", ".claude/skills")


def list_project_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the folders from the root of the workspace's repository down to the workspace, or the workspace
    alone if it is in no repository of this user's."""
    folder = workspace.absolute()
    for number, above in enumerate((folder, *folder.parents)):
        try:
            owner = (above / ".git").lstat().st_uid
            owners = (os.getuid(), folder.stat().st_uid)
        except OSError:
            continue
        # another user's repository, such as one in /tmp, says nothing about this folder
        return (*reversed(folder.parents[:number]), folder) if owner in owners else (folder,)
    return (folder,)
