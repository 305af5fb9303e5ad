"""A file that is UTF-8 but for a few bytes stays so: it is read, searched and edited as UTF-8."""

from __future__ import annotations

import pytest

from tests.tools.calls import Desk
from whet.contract.errors import BadInput

_TEXT = "".join(f"Zeile {number} schön 中文 ok\n" for number in range(50)).encode()
_CHINESE = "".join(f"第{number}行：包含中文内容。\n" for number in range(50)).encode()
_MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (_TEXT[: _TEXT.index("中".encode(), 300) + 1], r"schön ‹\xe4›"),
        ("ö\n".encode()[1:] + _TEXT, r"1|‹\xb6›"),
        (_TEXT[: _TEXT.index(b"Zeile 7")] + b"\x80\n" + _TEXT, r"8|‹\x80›"),
        (_MARK + _TEXT + b"stray \xff\n", r"51|stray ‹\xff›"),
        ("Zeile 1 schön ".encode() + b"\xff\n", r"‹\xff›"),
    ],
    ids=["cut at the end", "cut at the beginning", "in the middle", "with a mark", "one word"],
)
def test_stray_bytes_are_shown_and_kept(desk: Desk, data: bytes, shown: str) -> None:
    path = desk.workspace / "a.log"
    path.write_bytes(data)
    text = desk.text("read_file", path="a.log")
    assert shown in text and r"bytes that are not UTF-8 are shown as ‹\xff›" in text
    assert "a.log" in desk.text("search_files", pattern="schön")
    desk.call(
        "patch", path="a.log", old_string="Zeile 1 schön", new_string="Zeile 1 größer", replace_all=True
    )
    patched = data.replace("Zeile 1 schön".encode(), "Zeile 1 größer".encode())
    assert path.read_bytes() == patched
    rows = [row.partition("|")[2] for row in desk.text("read_file", path="a.log").split("\n") if "|" in row]
    desk.call("write_file", path="a.log", content="\n".join(["Ä", *rows]) + "\n" * patched.endswith(b"\n"))
    assert path.read_bytes().removeprefix(_MARK) == "Ä\n".encode() + patched.removeprefix(_MARK)


def test_a_chinese_file_with_a_stray_byte_is_readable(desk: Desk) -> None:
    path = desk.workspace / "cn.txt"
    path.write_bytes(_CHINESE + b"\xff\n")
    assert "第1行：包含中文内容。" in desk.text("read_file", path="cn.txt")
    desk.call("patch", path="cn.txt", old_string="第1行", new_string="第一行")
    assert path.read_bytes() == _CHINESE.replace("第1行".encode(), "第一行".encode()) + b"\xff\n"


def test_a_stray_byte_is_replaced_by_its_shown_form(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_bytes("schön\nna\xefve\n".encode("latin-1").replace(b"\xf6", "ö".encode()))
    desk.call("patch", path="a.txt", old_string=r"na‹\xef›ve", new_string="naïve")
    assert path.read_bytes() == "schön\nnaïve\n".encode()


def test_text_that_looks_like_a_stray_byte_is_not_written_as_one(desk: Desk) -> None:
    """A file that holds both can't be told apart from its text, and keeps its bytes."""
    path, data = desk.workspace / "a.txt", "schön ‹\\xff›\n".encode()
    path.write_bytes(data)
    desk.call("patch", path="a.txt", old_string="schön", new_string="schöner")
    assert path.read_bytes() == data.replace("schön".encode(), "schöner".encode())
    path.write_bytes(_MARK + data + b"\xff\n")
    with pytest.raises(BadInput, match="binary"):
        desk.call("patch", path="a.txt", old_string="schön", new_string="schöner")
