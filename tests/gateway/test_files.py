"""Where a person's files lie, and which of them may be sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.contract.errors import WhetError
from whet.gateway.files import ChatFiles, outgoing


def test_the_owner_works_in_their_folder_and_others_below_the_home(tmp_path: Path) -> None:
    files = ChatFiles(tmp_path / "people", tmp_path / "work", 10)
    assert files.workspace("") == tmp_path / "work" and not (tmp_path / "work").exists()
    theirs = files.workspace("ben")
    assert theirs == tmp_path / "people" / "ben" / "work" and theirs.stat().st_mode & 0o777 == 0o700
    assert files.workspace("ben") == theirs


def test_only_a_plain_file_of_the_workspace_within_the_limit_is_sent(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_bytes(b"x" * 10)
    (tmp_path / "b.txt").write_bytes(b"x")
    (work / "link").symlink_to(tmp_path / "b.txt")
    assert outgoing(work, "a.txt", 10) == work / "a.txt"
    with pytest.raises(WhetError, match="larger than 0 MB"):
        outgoing(work, "a.txt", 9)
    for path in ("link", "../b.txt", ".", "absent"):
        with pytest.raises(WhetError, match="is no file in"):
            outgoing(work, path, 10)
