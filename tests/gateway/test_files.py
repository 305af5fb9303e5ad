"""Where a person's files lie, and which of them may be sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from whet.contract.channels import Channel, ChatPlace, FileRef, Incoming, SendFailed
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


class Platform:
    """Has every file; its bytes are where it is."""

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        if len(file.where) > most_bytes:
            raise SendFailed("it is larger than it said")
        return file.where.encode()


def received(folder: Path, *files: FileRef, text: str = "") -> tuple[list[str], int]:
    """Take files in; gives the lines that the model reads, and how many images."""
    update = Incoming(ChatPlace("p", "7", user="7"), "u1", "message", text=text, files=files)
    chat_files = ChatFiles(folder / "people", folder / "work", 10)
    told, images = asyncio.run(chat_files.receive(cast("Channel", Platform()), update, ""))
    return told.splitlines(), len(images)


def test_files_are_taken_in_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    lines, images = received(
        tmp_path,
        FileRef("x" * 10, "a.txt", size_bytes=10),
        FileRef("y", "b.txt", size_bytes=11),
        FileRef("z" * 11, "c.txt"),
        FileRef("GIF89a", "d\ne.gif"),
        text="Look.",
    )
    assert lines[:2] == ["Look.", "[file received: received/a.txt, 10 bytes]"]
    assert lines[2] == "['b.txt' was sent and could not be taken: it is larger than 0 MB]"
    assert lines[3] == "['c.txt' was sent and could not be taken: it is larger than it said]"
    assert len(lines) == 5 and images == 1
    assert (tmp_path / "work" / "received" / "a.txt").read_bytes() == b"x" * 10


def test_ten_files_are_taken_in_and_the_rest_is_counted(tmp_path: Path) -> None:
    files = [FileRef(f"{number}", f"{number}.txt") for number in range(12)]
    assert len(received(tmp_path / "a", *files[:10])[0]) == 10
    lines, _ = received(tmp_path / "b", *files)
    assert len(lines) == 11 and lines[-1] == "[2 more files were left out]"
