"""Reading and writing real files: pages, encodings, odd kinds, huge ones, and writes that don't finish."""

from __future__ import annotations

import asyncio
import base64
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.support import cancel_task
from tests.tools.calls import Desk
from whet.contract.errors import BadInput, ToolDenied

_TWO_LINES = "grün\nzwei\n"


@pytest.mark.parametrize(
    ("data", "arguments", "text"),
    [
        (b"one\n\n  three\n", {}, "1|one\n2|\n3|  three"),
        (b"", {}, "[a.txt is empty]"),
        (b"one\ntwo", {}, "1|one\n2|two\n[no newline at the end]"),
        (b"\n\n\nx\n\ny\n", {"offset": 4}, "4|x\n5|\n6|y\n[lines 4-6 of 6]"),
        (b"\n\n\nx\n\ny\n", {"offset": 2, "limit": 2}, "2|\n3|\n[lines 2-3 of 6; read on with offset=4]"),
        (b"\x1b[31mred\x1b[0m\n", {}, "1|red\n[9 control characters not shown]"),
        (b"\0\1\2" * 100, {}, "[a.txt is binary, 300 bytes; not text, so not shown]"),
        (b"SQLite format 3\0" * 2, {}, "[a.txt is an SQLite database, 32 bytes; not text, so not shown]"),
        (b"\xef\xbb\xbf" + _TWO_LINES.encode(), {}, "1|grün\n2|zwei\n[UTF-8 with byte order mark]"),
        (f"\ufeff{_TWO_LINES}".encode("utf-16-le"), {}, "1|grün\n2|zwei\n[UTF-16-LE with byte order mark]"),
        (f"\ufeff{_TWO_LINES}".encode("utf-16-be"), {}, "1|grün\n2|zwei\n[UTF-16-BE with byte order mark]"),
        (_TWO_LINES.encode("latin-1"), {}, "1|grün\n2|zwei\n[not UTF-8, read as Latin-1]"),
        ("grün\r\nzwei\r\n".encode(), {}, "1|grün\n2|zwei\n[lines end with CRLF]"),
        (b"x\n" * 524_287 + b"y" + "é\n".encode(), {"offset": 524_288}, None),  # split by the chunk
        (
            "\ufeffone\n".encode("utf-16-le") + b"t",  # half a character at the end
            {},
            "1|one\n2|\ufffd\n[UTF-16-LE with byte order mark; unreadable bytes are shown as \ufffd; "
            "no newline at the end]",
        ),
    ],
)
def test_a_file_is_shown_as_numbered_lines_with_what_is_odd_about_it(
    desk: Desk, data: bytes, arguments: dict[str, int], text: str | None
) -> None:
    (desk.workspace / "a.txt").write_bytes(data)
    shown = text or "524288|yé\n[lines 524288-524288 of 524,288]"
    assert desk.text("read_file", path="a.txt", **arguments) == shown


@pytest.mark.parametrize(("data", "offset", "count"), [("one\ntwo", 9, 2), ("\n\n\nx\n\ny\n", 7, 6)])
def test_a_page_past_the_end_is_refused(desk: Desk, data: str, offset: int, count: int) -> None:
    (desk.workspace / "a.txt").write_text(data)
    error = desk.error("read_file", path="a.txt", offset=offset)
    assert f"has {count} lines; line {offset} is past its end" in error.message


def test_pages_join_to_the_whole_file(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 1235)))
    first = desk.text("read_file", path="a.txt")
    assert first.startswith("  1|line 1\n")
    assert first.endswith("500|line 500\n[lines 1-500 of 1,234; read on with offset=501]")
    last = desk.text("read_file", path="a.txt", offset=1201)
    assert last.startswith("1201|line 1201\n") and last.endswith("[lines 1201-1234 of 1,234]")


def test_a_page_of_wide_lines_ends_early_and_says_so(desk: Desk) -> None:
    for width, following in ((991, 30), (992, 29), (1_030, 28)):  # 28,000 characters, with 8 for a number
        (desk.workspace / "a.txt").write_text(("x" * width + "\n") * 100)
        text = desk.text("read_file", path="a.txt")
        assert len(text) < 30_000
        assert text.endswith(f"of 100; read on with offset={following}]")


def test_a_file_of_several_chunks_is_read_on(desk: Desk) -> None:
    half = "x" * 700_000
    (desk.workspace / "a.txt").write_text(f"{half}{half}\nsecond\n{half}\nthird\n\n\nlast")
    assert desk.text("read_file", path="a.txt", offset=2) == (
        f"2|second\n3|{'x' * 2_000} [... 698,000 characters more]\n4|third\n5|\n6|\n7|last\n"
        "[a command shows more of a long line: sed -n 3p FILE | cut -c2001-28000;"
        " no newline at the end; lines 2-7 of 7]"
    )
    assert desk.text("read_file", path="a.txt", offset=6, limit=1).startswith("6|\n[lines 6-6 of 7")


def test_a_line_of_2000_characters_is_whole(desk: Desk) -> None:
    more = " [... 1 characters more]"
    for line, shown in (("x" * 2_000, ""), ("x" * 2_000 + "\r", ""), ("x" * 2_001, more)):
        (desk.workspace / "a.txt").write_text(f"{line}\ny\n", newline="")
        assert desk.text("read_file", path="a.txt").startswith(f"1|{'x' * 2_000}{shown}\n2|y")


def test_one_endless_line_costs_its_first_2000_characters(desk: Desk) -> None:
    (desk.workspace / "a.min.js").write_text("x" * 10_000_000 + "\nlast\n")
    text = desk.text("read_file", path="a.min.js")
    assert text.startswith("1|" + "x" * 2000 + " [... 9,998,000 characters more]\n2|last")
    assert len(text) < 2_200


def test_images_come_as_images(desk: Desk) -> None:
    heads = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff\xe0"}
    heads |= {"gif": b"GIF89a", "webp": b"RIFF\0\0\0\0WEBP"}
    for kind, head in heads.items():
        (desk.workspace / kind).write_bytes(head + b"\0" * 50)
        output = desk.call("read_file", path=kind)
        assert output.images[0].media_type == f"image/{kind}"
        assert base64.b64decode(output.images[0].data_base64) == head + b"\0" * 50
    (desk.workspace / "big.png").write_bytes(heads["png"] + b"\0" * 5_000_000)
    big = desk.call("read_file", path="big.png")
    assert not big.images and "too large to view" in big.text


def test_a_folder_is_listed(desk: Desk) -> None:
    (desk.workspace / "b.txt").write_text("12345")
    (desk.workspace / "a").mkdir()
    (desk.workspace / "c").symlink_to("b.txt")
    assert desk.text("read_file", path=".") == "a/\nb.txt  5 bytes\nc -> b.txt\n[.: 3 entries]"
    assert desk.text("read_file", path=".", limit=1) == "a/\n[.: 3 entries; read on with offset=2]"
    assert desk.text("read_file", path="a") == "[a is an empty folder]"


def test_a_missing_file_offers_the_nearest(desk: Desk) -> None:
    (desk.workspace / "settings.py").write_text("")
    error = desk.error("read_file", path="setting.py")
    assert "does not exist" in error.message and "settings.py" in error.hint


def test_a_fifo_does_not_hang(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "pipe")
    texts = {"old_string": "a", "new_string": "b"}
    for name, arguments in (("read_file", {}), ("write_file", {"content": "x"}), ("patch", texts)):
        assert "FIFO" in desk.error(name, path="pipe", **arguments).message


@pytest.mark.slow
def test_a_gigabyte_is_paged_in_little_memory(desk: Desk) -> None:
    # The hole reads as NULs, so a mark makes it text; what matters is that nothing is held.
    with (desk.workspace / "big.log").open("wb") as stream:
        stream.write(b"\xef\xbb\xbfst\nsecond\n")
        stream.truncate(1_000_000_000)
    tracemalloc.start()
    try:
        text = desk.text("read_file", path="big.log", limit=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "1|st" in text and "lines 1-1 of over" in text
    assert peak < 16_000_000


def test_write_creates_with_folders_and_overwrites_keeping_the_mode(desk: Desk) -> None:
    assert desk.text("write_file", path="new/deep/run.sh", content="a\nb\n") == (
        "created new/deep/run.sh: 2 lines, 4 bytes"
    )
    path = desk.workspace / "new/deep/run.sh"
    path.chmod(0o751)
    assert desk.text("write_file", path="new/deep/run.sh", content="é\n") == (
        "overwrote new/deep/run.sh: 1 line, 3 bytes"
    )
    assert path.read_bytes() == "é\n".encode() and path.stat().st_mode & 0o777 == 0o751
    assert os.listdir(path.parent) == ["run.sh"]


@pytest.mark.parametrize("mode", [0o2750, 0o4755, 0o6711])
@pytest.mark.parametrize("has_other_name", [False, True])
def test_a_file_keeps_setuid_and_setgid(desk: Desk, mode: int, has_other_name: bool) -> None:
    path = desk.workspace / "run.sh"
    path.write_text("one\n")
    if has_other_name:
        os.link(path, desk.workspace / "other.sh")
    path.chmod(mode)
    desk.call("read_file", path="run.sh")
    assert "lost" not in desk.text("write_file", path="run.sh", content="two\n")
    assert path.stat().st_mode & 0o7777 == mode
    assert "lost" not in desk.text("patch", path="run.sh", old_string="two", new_string="three")
    assert path.read_text() == "three\n" and path.stat().st_mode & 0o7777 == mode


def test_a_new_file_follows_the_umask(desk: Desk) -> None:
    old = os.umask(0o027)
    try:
        desk.call("write_file", path="a", content="")
    finally:
        os.umask(old)
    assert (desk.workspace / "a").stat().st_mode & 0o777 == 0o640


def test_write_through_a_link_inside_keeps_the_link(desk: Desk) -> None:
    (desk.workspace / "real").write_text("old")
    (desk.workspace / "link").symlink_to("real")
    desk.call("write_file", path="link", content="new")
    assert (desk.workspace / "link").is_symlink() and (desk.workspace / "real").read_text() == "new"


def test_write_refuses_what_it_must_not_replace(desk: Desk) -> None:
    (desk.workspace / "folder").mkdir()
    (desk.workspace / "locked").write_text("old")
    (desk.workspace / "locked").chmod(0o444)
    (desk.workspace / "out").symlink_to(desk.workspace.parent / "outside")
    assert "is a folder" in desk.error("write_file", path="folder", content="x").message
    assert "read-only" in desk.error("write_file", path="locked", content="x").message
    assert isinstance(desk.error("write_file", path="out", content="x"), ToolDenied)
    assert isinstance(desk.error("write_file", path="a", content="\ud800"), BadInput)
    assert "longer name" in desk.error("write_file", path="n" * 300, content="x").message
    assert "can't write" in desk.error("write_file", path="locked/below", content="x").message
    assert (desk.workspace / "locked").read_text() == "old"
    assert sorted(os.listdir(desk.workspace)) == ["folder", "locked", "out"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("old")
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tests.tools.calls import Desk\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "desk = Desk(Path(sys.argv[1]))\n"
        "print(desk.error('write_file', path='a.txt', content='x' * 200_000).message)\n"
        "print(desk.error('patch', path='a.txt', old_string='old', new_string='x' * 200_000).message)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", program, str(desk.workspace)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.count("can't write a.txt: file too large") == 2
    assert (desk.workspace / "a.txt").read_text() == "old"
    assert os.listdir(desk.workspace) == ["a.txt"]


def test_allowed_folders_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/a").write_text("hello")
    desk = Desk(tmp_path / "work", allowed=[tmp_path / "extra"])
    assert desk.text("read_file", path="../extra/a").startswith("1|hello")


async def test_a_cancelled_read_frees_its_thread(desk: Desk) -> None:
    desk = Desk(desk.workspace, workers=1)
    with (desk.workspace / "big").open("wb") as stream:
        stream.write(b"\xef\xbb\xbf")
        stream.truncate(60_000_000_000)
    task = asyncio.create_task(desk.acall("read_file", path="big", offset=2))
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    await cancel_task(task)
    async with asyncio.timeout(30):
        await desk.acall("read_file", path=".")
