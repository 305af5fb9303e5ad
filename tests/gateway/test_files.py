"""Where a person's files lie, and which of them may be sent."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from whet.app.received_files import MAX_IMAGE_BYTES
from whet.channels.discord import Discord
from whet.channels.slack import Slack
from whet.channels.telegram import Telegram
from whet.channels.transfer import read_file
from whet.config.schema import VoiceSettings
from whet.contract.brought_text import drop_marks
from whet.contract.channels import (
    Channel,
    ChatPlace,
    FileBounds,
    FileRef,
    Incoming,
    Outgoing,
    PlatformLimits,
    SendFailed,
)
from whet.contract.errors import BadInput, WhetError
from whet.contract.messages import ImagePart
from whet.contract.tools import ToolContext
from whet.gateway.files import ChatFiles, find_sendable_file, send_file_tool, split_album
from whet.gateway.voice import VoiceNotes

SILENT = VoiceNotes(VoiceSettings(), {})


def test_the_owner_works_in_their_folder_and_others_below_the_home(tmp_path: Path) -> None:
    files = ChatFiles(tmp_path / "people", tmp_path / "work", 10, SILENT)
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
    assert find_sendable_file(work, "a.txt", 10) == work / "a.txt"
    with pytest.raises(WhetError, match="larger than 0 MB"):
        find_sendable_file(work, "a.txt", 9)
    for path in ("link", "../b.txt", ".", "absent"):
        with pytest.raises(WhetError, match="is not a file in"):
            find_sendable_file(work, path, 10)


class Platform:
    """Has every file; its bytes are where it is, and an error number fails."""

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        if file.where.startswith("errno "):
            raise OSError(int(file.where[6:]), os.strerror(int(file.where[6:])))
        if len(file.where) > max_bytes:
            raise SendFailed("it is larger than it said")
        return file.where.encode()


def received(
    folder: Path, *files: FileRef, text: str = "", max_bytes: int = 10, profile: str = ""
) -> tuple[list[str], list[ImagePart]]:
    """Take files in; gives the lines that the model reads, and the images."""
    update = Incoming(ChatPlace("p", "7", user="7"), "u1", "message", text=text, files=files)
    chat_files = ChatFiles(folder / "people", folder / "work", max_bytes, SILENT)
    told, images = asyncio.run(chat_files.receive(cast("Channel", Platform()), update, profile))
    return drop_marks(told).splitlines(), [*images]


def test_files_are_taken_in_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    lines, images = received(
        tmp_path,
        FileRef("x" * 10, "a.txt", size_bytes=10),
        FileRef("y", "b.txt", size_bytes=11),
        FileRef("z" * 11, "c.txt"),
        FileRef(f"errno {errno.ENOSPC}", "full.txt"),
        FileRef("GIF89a", "d\ne.gif"),
        FileRef("n", ""),
        text="Look.",
    )
    assert lines == [
        "Look.",
        "<file>[file received: received/a.txt, 10 bytes]</file>",
        "<file>['b.txt' was sent and could not be taken: it is larger than 0 MB]</file>",
        "<file>['c.txt' was sent and could not be taken: it is larger than it said]</file>",
        "<file>['full.txt' was sent and could not be taken: No space left on device]</file>",
        "<file>[file received: received/d_e.gif, 6 bytes]</file>",
        "<file>[file received: received/file, 1 bytes]</file>",
    ]
    assert images == [ImagePart("image/gif", base64.b64encode(b"GIF89a").decode())]
    assert (tmp_path / "work" / "received" / "a.txt").read_bytes() == b"x" * 10
    nameless = received(tmp_path, FileRef(f"errno {errno.EIO}", ""), profile="ben")[0]
    assert nameless == [
        "<file>['a file without a name' was sent and could not be taken: Input/output error]</file>"
    ]
    two_lines = received(tmp_path, FileRef(f"errno {errno.EIO}", "a\nb"))[0]
    assert two_lines == ["<file>['a b' was sent and could not be taken: Input/output error]</file>"]


def test_a_file_is_kept_where_its_sender_works(tmp_path: Path) -> None:
    (lines, _) = received(tmp_path, FileRef("x", "a.txt"), profile="ben")
    assert lines == ["<file>[file received: received/a.txt, 1 bytes]</file>"]
    assert (tmp_path / "people" / "ben" / "work" / "received" / "a.txt").read_bytes() == b"x"


def test_a_file_is_too_large_by_whole_megabytes(tmp_path: Path) -> None:
    lines, _ = received(tmp_path, FileRef("y", "b.txt", size_bytes=2_000_001), max_bytes=2_000_000)
    assert lines == ["<file>['b.txt' was sent and could not be taken: it is larger than 2 MB]</file>"]
    (tmp_path / "b.txt").write_bytes(b"x" * 2_000_001)
    with pytest.raises(WhetError, match=r"^b.txt is larger than 2 MB$"):
        find_sendable_file(tmp_path, "b.txt", 2_000_000)


def test_an_image_is_shown_to_the_model_unless_it_is_very_large(tmp_path: Path) -> None:
    largest = "GIF89a".ljust(MAX_IMAGE_BYTES, ".")
    lines, images = received(
        tmp_path, FileRef(largest, "a.gif"), FileRef(f"{largest}.", "b.gif"), max_bytes=6_000_000
    )
    assert lines == [
        "<file>[file received: received/a.gif, 5,000,000 bytes]</file>",
        "<file>[file received: received/b.gif, 5,000,001 bytes]</file>",
    ]
    assert images == [ImagePart("image/gif", base64.b64encode(largest.encode()).decode())]


def test_the_model_sends_a_file_to_whoever_reads_its_answer(tmp_path: Path) -> None:
    posted: list[tuple[str, Outgoing]] = []

    async def post(session_id: str, message: Outgoing) -> bool:
        posted.append((session_id, message))
        return session_id == "s"

    async def nobody(question: str, choices: Sequence[str]) -> None:
        return None

    send = send_file_tool(post, 10)
    (tmp_path / "a.txt").write_bytes(b"x" * 10)
    (tmp_path / "b.txt").write_bytes(b"x" * 11)

    def sent(session_id: str, **arguments: object) -> object:
        context = ToolContext(session_id, "t", "c", tmp_path, print, nobody)
        return asyncio.run(send.run(context, arguments))

    output = sent("s", path="a.txt", caption="y" * 1_001)
    assert getattr(output, "text", output) == "a.txt is on its way."
    full = str((tmp_path / "a.txt").resolve())
    bounds = FileBounds(str(tmp_path.resolve()), 10)
    assert posted == [("s", Outgoing("y" * 1_001, file=full, file_name="a.txt", bounds=bounds))]
    with pytest.raises(BadInput, match="there is nobody to send it to here"):
        sent("other", path="a.txt")
    with pytest.raises(BadInput, match="larger than 0 MB"):
        sent("s", path="b.txt")
    with pytest.raises(BadInput, match="is not a file in") as caught:
        sent("s", path="none")
    assert caught.value.hint == "only files of the workspace can be sent" and len(posted) == 2
    assert (send.spec.name, send.toolset, send.effects, send.timeout_s) == ("send_file", "file", {"read"}, 30)


def test_an_album_keeps_to_the_platform_s_number_and_size(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"x" * 10)
    paths = [str(tmp_path / f"{number}") for number in range(5)]
    message = Outgoing("here", file=paths[0], file_name="zero", more_files=tuple(paths[1:]))

    def split(count: int, size_bytes: int) -> list[list[str]]:
        limits = PlatformLimits(9, 1.0, 1.0, album_files=count, album_bytes=size_bytes)
        parts = split_album(message, limits)
        assert [part.text for part in parts] == ["here", *[""] * (len(parts) - 1)]
        assert [part.file_name for part in parts] == ["zero", *[""] * (len(parts) - 1)]
        return [[Path(path).name for path in (part.file, *part.more_files)] for part in parts]

    assert split(10, 100) == [["0", "1", "2", "3", "4"]]
    assert split(2, 100) == [["0", "1"], ["2", "3"], ["4"]]
    assert split(10, 39) == [["0", "1", "2"], ["3", "4"]]
    assert split(10, 5) == [["0"], ["1"], ["2"], ["3"], ["4"]], "a file alone is the platform's to judge"
    assert split(1, 100) == [["0"], ["1"], ["2"], ["3"], ["4"]]


@pytest.mark.parametrize("limits", [Telegram.limits, Discord.limits, Slack.limits])
def test_a_long_caption_goes_on_in_messages_of_whole_words(limits: PlatformLimits) -> None:
    text = "Käse 🧀 und Brot. " * 250
    names = tuple(map(str, range(limits.album_files)))
    message = Outgoing(text, file="a", file_name="a", more_files=names, quiet=True)
    first, *texts, last = split_album(message, limits)
    assert (first.file, first.more_files, last.file, last.text) == ("a", names[:-1], names[-1], "")
    assert texts and all(part.text and part.quiet and not part.file for part in texts)
    caption_units, *units = [len(part.text.encode("utf-16-le")) // 2 for part in (first, *texts)]
    assert caption_units <= (1_000 if limits is Telegram.limits else limits.message_chars)
    assert max(units) <= limits.message_chars
    assert " ".join(part.text for part in (first, *texts)).split() == text.split()
    short = Outgoing("here", file="a", file_name="a")
    assert split_album(short, limits) == [short]


def test_too_many_files_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    async def post(session_id: str, message: Outgoing) -> bool:
        raise AssertionError(message)

    async def nobody(question: str, choices: Sequence[str]) -> None:
        return None

    context = ToolContext("s", "t", "c", tmp_path, print, nobody)
    with pytest.raises(BadInput, match="at most 50 files"):
        asyncio.run(send_file_tool(post, 10).run(context, {"path": "a", "more": ["a"] * 50}))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_received_file_goes_through_no_link_that_a_command_left(tmp_path: Path, is_there: bool) -> None:
    outside = tmp_path / "outside"
    if is_there:
        outside.mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "received").symlink_to(outside)
    lines, _ = received(tmp_path, FileRef("x", "rc"))
    assert lines == [
        "<file>['rc' was sent and could not be taken: received in the workspace is not a folder]</file>"
    ]
    assert not (outside / "rc").exists()


def test_a_received_file_takes_the_place_of_no_link(tmp_path: Path) -> None:
    (tmp_path / "work" / "received").mkdir(parents=True)
    (tmp_path / "work" / "received" / "a.txt").symlink_to(tmp_path / "outside")
    lines, _ = received(tmp_path, FileRef("x", "a.txt"), FileRef("y", "-rf.txt"))
    assert lines == [
        "<file>[file received: received/a-2.txt, 1 bytes]</file>",
        "<file>[file received: received/rf.txt, 1 bytes]</file>",
    ]
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c.txt"])
def test_a_file_is_sent_from_where_it_was_looked_at(tmp_path: Path, link: str) -> None:
    """The outbox reads it later: a command may have put a link in the place of any part of its path."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    for root in (work, outside):
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "b" / "c.txt").write_text(root.name)
    posted: list[Outgoing] = []

    async def post(session_id: str, message: Outgoing) -> bool:
        posted.append(message)
        return True

    async def nobody(question: str, choices: Sequence[str]) -> None:
        return None

    context = ToolContext("s", "t", "c", work, print, nobody)
    asyncio.run(send_file_tool(post, 10).run(context, {"path": "a/b/c.txt"}))
    assert asyncio.run(read_file(posted[0])) == b"work"
    (work / link).rename(work / "moved")
    (work / link).symlink_to(outside / link)
    with pytest.raises(SendFailed) as caught:
        asyncio.run(read_file(posted[0]))
    assert caught.value.is_final
    (work / link).unlink()
    (work / "moved").rename(work / link)
    (work / "a" / "b" / "c.txt").write_text("x" * 11)
    with pytest.raises(SendFailed, match="File too large"):
        asyncio.run(read_file(posted[0]))


def test_ten_files_are_taken_in_and_the_rest_is_counted(tmp_path: Path) -> None:
    files = [FileRef(f"{number}", f"{number}.txt") for number in range(12)]
    assert len(received(tmp_path / "a", *files[:10])[0]) == 10
    lines, _ = received(tmp_path / "b", *files)
    assert len(lines) == 11 and lines[-1] == "[2 more files were left out]"
