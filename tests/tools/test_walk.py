"""The search without ripgrep, below its program: globs, ignore rules, and which lines match."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.support import each
from whet.tools import walk
from whet.tools.globs import parse_path_glob


@each(
    ("glob", "fits", "others"),
    [
        ("*.py", ["a.py", "src/deep/a.py", ".py"], ["a.pyc", "a.py/b", "apy"]),
        ("/*.py", ["a.py"], ["src/a.py"]),
        ("./a.py", ["a.py", "src/a.py"], ["b/aXpy"]),
        ("src/*.py", ["src/a.py"], ["src/deep/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "srcs/a.py"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "srcs/a"]),
        ("a?c", ["abc", "x/a\nc"], ["ac", "a/c"]),
        ("a[bc]", ["ab", "ac"], ["ad", "a[bc]"]),
        ("a[!b]", ["ac", "a!"], ["ab", "a/"]),
        ("a[/b]c", ["abc"], ["a/c"]),
        ("a[b-d-]", ["ab", "ac", "a-"], ["ae"]),
        ("**/*{**/a,b}", ["a", "xb", "x/a", "x/y/a"], ["ax", "x/c"]),
        ("a[^b]", ["ac", "a^"], ["ab", "a/"]),
        ("a[]]", ["a]"], ["a[", "ab"]),
        ("a[", ["a["], ["ab"]),
        ("a[]", ["a[]"], ["a"]),
        ("a[\\d]", ["ad", "a\\"], ["a1"]),
        ("*.{ts,t*t}", ["a.ts", "a.txt"], ["a.tsx", "a.{ts,t*t}"]),
        ("{a}", ["{a}"], ["a"]),
        ("a\\*", ["a*"], ["ab", "a\\b"]),
        ("a\\", ["a\\"], ["a"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)", "a.bb(c)"]),
    ],
)
def test_a_glob_fits_whole_paths(glob: str, fits: list[str], others: list[str]) -> None:
    pattern = parse_path_glob(glob)
    assert [path for path in fits + others if pattern.matches(path)] == fits


def found(folder: Path, rules: str, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".gitignore").write_text(rules)
    return [path.removeprefix(f"{folder}/") for path in walk.files(str(folder))]


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ("", ["a.log", "b.txt", "logs/c.txt", "src/a.log", "src/logs"]),
        ("*.log\n", ["b.txt", "logs/c.txt", "src/logs"]),
        ("*.log  \n\n# logs\n", ["b.txt", "logs/c.txt", "src/logs"]),
        ("*.log\r\n", ["b.txt", "logs/c.txt", "src/logs"]),
        ("/a.log\n", ["b.txt", "logs/c.txt", "src/a.log", "src/logs"]),
        ("src/*.log\n", ["a.log", "b.txt", "logs/c.txt", "src/logs"]),
        ("logs\n", ["a.log", "b.txt", "src/a.log"]),
        ("logs/\n", ["a.log", "b.txt", "src/a.log", "src/logs"]),
        ("/logs/\n", ["a.log", "b.txt", "src/a.log", "src/logs"]),
        ("*\n!*.txt\n", ["b.txt"]),
        ("!*.txt\n*\n", []),
        ("*.txt\n!.hidden\n", [".hidden", "a.log", "src/a.log", "src/logs"]),
        ("[z-a]\n*.log\n", ["b.txt", "logs/c.txt", "src/logs"]),
        ("\\#*\nb.txt\\ \n", ["a.log", "b.txt", "logs/c.txt", "src/a.log", "src/logs"]),
    ],
)
def test_an_ignore_file_drops_what_its_last_fitting_rule_says(
    tmp_path: Path, rules: str, kept: list[str]
) -> None:
    (tmp_path / "link").symlink_to("b.txt")
    assert found(tmp_path, rules, "a.log", "b.txt", ".hidden", "logs/c.txt", "src/a.log", "src/logs") == kept


def test_rules_come_from_the_folders_above_up_to_a_repository(tmp_path: Path) -> None:
    assert found(tmp_path, "*.log\n", "in/deep/a.log", "in/deep/b.tmp", "in/deep/c") == [
        "in/deep/b.tmp",
        "in/deep/c",
    ]
    (tmp_path / "in/.gitignore").write_text("*.tmp\n!*.log\n")
    deep = tmp_path / "in" / "deep"
    assert list(walk.files(str(deep))) == [f"{deep}/a.log", f"{deep}/c"]
    (deep / ".git").mkdir()
    everything = [f"{deep}/a.log", f"{deep}/b.tmp", f"{deep}/c"]
    assert list(walk.files(str(deep))) == everything
    assert [path for path in walk.files(str(tmp_path)) if path.startswith(f"{deep}/")] == everything
    assert list(walk.files(f"{deep}/a.log")) == [f"{deep}/a.log"]
    assert list(walk.files(f"{deep}/gone")) == [f"{deep}/gone"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\n\nza", [(1, b"a"), (3, b"za")]),
        (b"\xef\xbb\xbfa\n", [(1, b"a")]),
        (b"\xe9a\n", [(1, "éa".encode())]),
        (b"b\x0ca\xe2\x80\xa8a\n", [(1, b"b\x0ca\xe2\x80\xa8a")]),
        ("\ufeffäa\nb".encode("utf-16-le"), [(1, "äa".encode())]),
        ("\ufeffäa\nb".encode("utf-16-be"), [(1, "äa".encode())]),
        ("äa\nb\n".encode("utf-16-le"), [(1, "äa".encode())]),
        ("标题文字a\n".encode("gbk"), [(1, "标题文字a".encode())]),
        (b"b\n\0", []),
    ],
)
def test_lines_that_match_come_with_their_number(
    tmp_path: Path, data: bytes, expected: list[tuple[int, bytes]]
) -> None:
    (tmp_path / "x").write_bytes(data)
    assert walk.matches(str(tmp_path / "x"), walk.compile_for_lines("a")) == expected


@pytest.mark.fast_rows("x*", "[^b]a", "S")
@pytest.mark.parametrize(
    "source", [r"\d+\b", r"\S\s?$", "[^b]a", r"^\W*\w", "(?i)A|(?<!b) (?=b)", "x*", r"[\d \-]+c?"]
)
def test_a_whole_text_is_searched_for_the_lines_that_match(tmp_path: Path, source: str) -> None:
    pattern, random = walk.compile_for_lines(source), Random(46)
    assert pattern.text is not None
    for _ in range(200):
        text = "".join(random.choices("abA1 -\n\n\r\u00e9", k=random.randint(0, 30)))
        lines_text = text if "\n" in text else text.replace("\r", "\n")
        lines = lines_text.removesuffix("\n").split("\n") if text else []
        expected = [(number, line) for number, line in enumerate(lines, 1) if re.search(source, line)]
        (tmp_path / "x").write_bytes(text.encode())
        assert walk.matches(str(tmp_path / "x"), pattern) == [(at, line.encode()) for at, line in expected]


@pytest.mark.parametrize(
    "source", [r"\Aa", r"a\Z", r"(a)\1", r"[^]a]", r"[\s,]a", "(?s).a", "(?x) a", r"\x0a", "[\t-a]"]
)
def test_an_expression_that_may_see_a_line_end_is_compared_line_by_line(source: str) -> None:
    assert walk.compile_for_lines(source).text is None


def test_a_match_in_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\n\0")
    with pytest.raises(walk.BinaryMatch):
        walk.matches(str(tmp_path / "x"), walk.compile_for_lines("a"))


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as stream:
        stream.write(b"a\n")
        stream.truncate(walk.FILE_BYTES + 1)
    with pytest.raises(OSError, match="larger than 100 MB"):
        walk.matches(str(tmp_path / "x"), walk.compile_for_lines("a"))


@pytest.mark.timeout(60)
def test_ignore_rules_of_many_stars_end(tmp_path: Path) -> None:
    name = "a" * 200
    assert found(tmp_path, f"{'*a' * 16}*b\n", name) == [name]
    assert found(tmp_path, f"{'*a' * 16}*\n", name) == []
