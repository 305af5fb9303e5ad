"""Read the branch that a folder is on, for status lines and pages."""

from __future__ import annotations

from pathlib import Path

from whet.regular import read_regular_text


def read_branch(folder: Path) -> str:
    """Return the branch of the git repository around `folder`, or an empty string if there is none.

    Does not run git. For a detached HEAD it is the first 8 digits of the commit.
    """
    for directory in (folder, *folder.parents):
        git = directory / ".git"
        try:
            if git.is_file():  # a worktree or a submodule
                git = directory / read_regular_text(git, 4_096).removeprefix("gitdir:").strip()
            elif not git.is_dir():
                continue
            head = read_regular_text(git / "HEAD", 4_096).strip()
        except (OSError, ValueError):
            return ""
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""
