"""A file keeps its encoding, mark, line endings and bytes through every tool that reads or writes it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.tools.calls import Desk
from whet.contract.errors import BadInput

TEXTS = {
    "utf-8": "# Größe, 数, имя\n",
    "utf-16-le": "# Größe, 数, имя\n",
    "utf-16-be": "# Größe, 数, имя\n",
    "gb18030": "# 标题文字说明, 返回结果\n",
    "big5": "# 這個程式用來讀取資料\n",
    "cp932": "# 日本語のコメントです\n",
    "euc_jp": "# 関数はファイルを読み込んで\n",
    "cp949": "# 한국어 주석입니다\n",
    "cp1251": "# Эта функция читает файл\n",
    "koi8_r": "# Эта функция читает файл\n",
    "cp1252": "# “prix” – 5 € à payer\n",
    "latin-1": "# à la carte, déjà vu\n",
}
_MARKS = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
FORMS = list(itertools.product(TEXTS, ("LF", "CRLF", "mixed"), ("mark", "plain"), (1, 20, 60), (True, False)))


def make_bytes(encoding: str, ends: str, mark: str, size: int, has_last_newline: bool) -> bytes:
    lines = [TEXTS[encoding], "x = 1\n", "y = 2\n", TEXTS[encoding]] * size
    if ends != "LF":
        lines = [
            line.replace("\n", "\r\n") if ends == "CRLF" or number % 3 else line
            for number, line in enumerate(lines)
        ]
    text = "".join(lines)
    text = text if has_last_newline else text.removesuffix("\n").removesuffix("\r")
    return (_MARKS.get(encoding, b"") if mark == "mark" else b"") + text.encode(encoding)


def _check_round_trip(desk: Desk, name: str, form: tuple[str, str, str, int, bool]) -> None:
    encoding = form[0]
    path, data = desk.workspace / name, make_bytes(*form)
    path.write_bytes(data)
    assert TEXTS[encoding].strip() in desk.text("read_file", path=name, limit=4), form
    old, new = "x = 1\ny = 2\n", "x = 7\ny = 2\n"
    desk.call("patch", path=name, old_string=old, new_string=new, replace_all=form[3] > 1)
    before, after = "x = 1".encode(encoding), "x = 7".encode(encoding)
    patched = path.read_bytes()
    assert patched == data.replace(before, after), form
    text = patched.removeprefix(_MARKS.get(encoding, b"") if form[2] == "mark" else b"").decode(encoding)
    desk.call("write_file", path=name, content=text.replace("\r\n", "\n").replace("x = 7", "x = 1"))
    assert path.read_bytes() == data, form
    desk.call("patch", diff=f"--- a/{name}\n+++ b/{name}\n@@ -2,2 +2,2 @@\n-x = 1\n+x = 7\n y = 2\n")
    assert path.read_bytes() == data.replace(before, after, 1), form
    path.write_bytes(data)


def _check_search(desk: Desk, forms: Sequence[tuple[str, str, str, int, bool]]) -> None:
    """Check that the first line of each file is found, as its characters, and no file is changed."""
    names = [f"{number}.txt" for number, _ in enumerate(forms)]
    kept = [(desk.workspace / name).read_bytes() for name in names]
    text = desk.text("search_files", pattern="^# |数", limit=100_000)
    for name, form in zip(names, forms, strict=True):
        assert f"{name}\n1|{TEXTS[form[0]].strip()}\n" in text, form
    assert kept == [(desk.workspace / name).read_bytes() for name in names]


def test_a_gbk_file_refuses_a_character_that_only_gb18030_has(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_bytes(TEXTS["gb18030"].encode("gbk"))
    assert "read as GBK]" in desk.text("read_file", path="a.txt")
    with pytest.raises(BadInput, match="gbk, which can't hold '\U0001f600'"):
        desk.call("patch", path="a.txt", old_string="标题", new_string="\U0001f600")
    assert path.read_bytes() == TEXTS["gb18030"].encode("gbk")
    path.write_bytes(f"{TEXTS['gb18030']}\U0001f600\n".encode("gb18030"))
    assert "read as GB18030]" in desk.text("read_file", path="a.txt")
    desk.call("patch", path="a.txt", old_string="标题", new_string="\U0001f600")
    assert path.read_bytes().decode("gb18030").count("\U0001f600") == 2


@pytest.mark.fast_rows("0", "145", "29")
@pytest.mark.parametrize("number", range(0, len(FORMS), 29))
def test_a_file_keeps_its_form(desk: Desk, number: int) -> None:
    _check_round_trip(desk, "0.txt", FORMS[number])
    _check_search(desk, [FORMS[number]])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_all_generated_files_keep_their_form(desk: Desk) -> None:
    assert len(FORMS) >= 400
    for form in FORMS:
        _check_round_trip(desk, "0.txt", form)
        lines = desk.text("search_files", pattern="^# |数", path="0.txt", limit=1_000)
        assert lines.count(TEXTS[form[0]].strip()) == 2 * form[3], form
        assert (desk.workspace / "0.txt").read_bytes() == make_bytes(*form), form
    small = [form for form in FORMS if form[3] == 1]
    for number, form in enumerate(small):
        (desk.workspace / f"{number}.txt").write_bytes(make_bytes(*form))
    _check_search(desk, small)


@pytest.mark.fast_rows("cp1252", "gb18030", "utf-16-le", "utf-8")
@pytest.mark.parametrize("encoding", TEXTS)
def test_characters_are_added_in_the_encoding_of_the_file(desk: Desk, encoding: str) -> None:
    path = desk.workspace / "a.txt"
    text = f"{TEXTS[encoding]}x\n"
    path.write_bytes(_MARKS.get(encoding, b"") + text.encode(encoding))
    desk.call("patch", path="a.txt", old_string="x\n", new_string=TEXTS[encoding])
    desk.call("write_file", path="a.txt", content=TEXTS[encoding] * 3)
    assert path.read_bytes() == _MARKS.get(encoding, b"") + (TEXTS[encoding] * 3).encode(encoding)


def test_a_rewrite_that_the_encoding_can_not_hold_is_refused(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_bytes("déjà vu\n".encode("latin-1"))
    error = desk.error("write_file", path="a.txt", content="déjà vu 数\n")
    assert "latin-1, which can't hold '数'" in error.message and "iconv" in error.hint
    assert path.read_bytes() == "déjà vu\n".encode("latin-1")


@pytest.mark.parametrize(
    ("before", "content", "note"),
    [
        (b"one\r\n", "two\n", "kept: CRLF line ends"),
        (b"\xef\xbb\xbfone\r\n", "two\n", "kept: UTF-8 with byte order mark, CRLF line ends"),
        (b"one\n", "one\r\ntwo\r\n", "line ends were LF, now CRLF"),
        (b"one", "two\n", "the file had no newline at its end, now it has"),
        (b"\0\1\2", "two\n", "it was not text before, and is UTF-8 now"),
        ("été\n".encode("latin-1"), "été\n", "kept: Latin-1"),
    ],
)
def test_a_rewrite_says_which_form_it_keeps_or_changes(
    desk: Desk, before: bytes, content: str, note: str
) -> None:
    (desk.workspace / "a.txt").write_bytes(before)
    assert f"\n[{note}]" in desk.text("write_file", path="a.txt", content=content)


def test_a_rewrite_of_a_file_with_both_line_ends_keeps_those_of_its_lines(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_bytes(b"one\r\ntwo\nthree\r\nfour\n")
    desk.call("write_file", path="a.txt", content="one\ntwo\nnew\nthree\nfour\n")
    assert path.read_bytes() == b"one\r\ntwo\nnew\nthree\r\nfour\n"


def test_a_plain_rewrite_says_nothing_of_its_form(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("one\n")
    assert desk.text("write_file", path="a.txt", content="two\n") == "overwrote a.txt: 1 line, 4 bytes"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_rewrite_keeps_the_end_of_each_untouched_line(desk: Desk, ending: str) -> None:
    path = desk.workspace / "a"
    path.write_bytes(b"one\r\ntwo\nthree\r\nfour\r\n")
    desk.call("read_file", path="a")
    desk.call("write_file", path="a", content=ending.join(["one", "two", "3", "four", ""]))
    assert path.read_bytes() == b"one\r\ntwo\n3\r\nfour\r\n"


def test_a_rewrite_whose_line_ends_are_not_the_files_says_so(desk: Desk) -> None:
    path = desk.workspace / "a"
    path.write_bytes(b"one\r\ntwo\n" + b"three\r\n" * 30_000)
    desk.call("read_file", path="a")
    result = desk.text("write_file", path="a", content="one\ntwo\n" + "three\n" * 29_999 + "four\n")
    assert "line ends were CRLF and LF, now CRLF" in result and "kept" not in result


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16-le"])
def test_a_file_whose_lines_end_with_cr_keeps_them(desk: Desk, encoding: str) -> None:
    path, mark = desk.workspace / "a.txt", _MARKS["utf-16-le"] if encoding == "utf-16-le" else b""
    path.write_bytes(mark + "a – ü\rb\rc\r".encode(encoding))
    text = desk.text("read_file", path="a.txt")
    assert text.startswith("1|a – ü\n2|b\n3|c\n[") and "CR line ends" in text and "no newline" not in text
    assert "a.txt\n2|b\n" in desk.text("search_files", pattern="b")
    desk.call("patch", path="a.txt", old_string="b\nc", new_string="B\nBB\nc")
    assert path.read_bytes() == mark + "a – ü\rB\rBB\rc\r".encode(encoding)
    desk.call("patch", diff="--- a/a.txt\n+++ b/a.txt\n@@ -2,2 +2,3 @@\n B\n BB\n+D\n")
    assert path.read_bytes() == mark + "a – ü\rB\rBB\rD\rc\r".encode(encoding)
    note = desk.text("write_file", path="a.txt", content="ü\r\ny\nz")
    assert path.read_bytes() == mark + "ü\ry\rz\r".encode(encoding) and "CR line ends" in note


def test_a_file_whose_name_only_looks_the_same_is_not_overwritten_unread(desk: Desk) -> None:
    path = desk.workspace / "café.txt"
    path.write_text("old\n")
    with pytest.raises(BadInput, match=r"exists, spelled in other characters: 'caf\\xe9.txt'"):
        desk.call("write_file", path="cafe\u0301.txt", content="new\n")
    desk.call("read_file", path="cafe\u0301.txt")
    desk.call("write_file", path="cafe\u0301.txt", content="new\n")
    assert path.read_text() == "new\n" and len(list(desk.workspace.glob("caf*"))) == 1


def test_text_in_another_normal_form_is_replaced_in_the_form_of_the_file(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_text("cafe\u0301 noir\n")
    text = desk.text("patch", path="a.txt", old_string="caf\u00e9 noir", new_string="caf\u00e9 cr\u00e8me")
    assert path.read_text() == "cafe\u0301 cre\u0300me\n" and "accents in the file's form (NFD)" in text


def test_an_added_last_newline_is_named(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("a\nb")
    text = desk.text("patch", path="a.txt", old_string="b", new_string="b\n")
    assert text.endswith("\n[a newline was added at the end]")
    with pytest.raises(BadInput, match="old_string is empty"):
        desk.call("patch", path="a.txt", old_string="", new_string="x")
