"""Searching: ripgrep and our own walk agree, ignored files stay out, nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import cancel_task, own_children
from tests.tools.calls import Desk
from whet.contract.errors import BadInput, ToolDenied

ENGINES = [
    pytest.param("rg", marks=pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is not installed")),
    None,
]


class Search:
    """`search_files` with one engine: ripgrep, another program in its place, or None for our own."""

    def __init__(self, engine: str | None) -> None:
        self.engine = engine

    def __call__(self, folder: Path, pattern: str, *, home: Path | None = None, **arguments: Any) -> str:
        desk = Desk(folder, ripgrep=self.engine, home=home)
        return desk.text("search_files", pattern=pattern, **arguments)

    def names(self, folder: Path, pattern: str, **arguments: Any) -> str:
        return self(folder, pattern, target="names", **arguments)


walk_search = Search(None)


@pytest.fixture(params=ENGINES, ids=["ripgrep", "walk"])
def search(request: pytest.FixtureRequest) -> Search:
    return Search(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    tree = {
        "a.py": "import os\nneedle = 1\n",
        "src/b.py": "def f():\n    return needle\n# needle again\n",
        "src/c.ts": "const needle = 2\r\n",
        "src/deep/d.txt": "NEEDLE\nneedle.*\n",
        "build/out.py": "needle\n",
        "src/skip.log": "needle\n",
        "src/keep.log": "needle\n",
        "src/only/here.tmp": "needle\n",
        "only/here.tmp": "needle\n",
        ".hidden/x": "needle\n",
        ".dot": "needle\n",
        ".shown": "needle\n",
        ".gitignore": "# comment\nbuild/\n*.log\n!keep.log\n/only/*.tmp\n!.shown\nsrc/**/gen\n",
        "src/.gitignore": "*.bak\n",
        "src/x.bak": "needle\n",
        "src/m/n/gen/y": "needle\n",
        "odd\nname.txt": "needle\n",
    }
    for name, text in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    (folder / "bin.dat").write_bytes(b"needle\n\0needle\n")
    (folder / "late.dat").write_bytes(b"needle\n" + b"x" * 200_000 + b"\n\0\n")
    (folder / "utf16.txt").write_bytes("\ufeffneedle ü\n".encode("utf-16-le"))
    (folder / "latin.txt").write_bytes(b"needle gr\xfcn\n")
    (folder / "link.py").symlink_to("a.py")
    (folder / "loop").symlink_to(".")
    return folder


NOT_FOUND = "[no matches; not searched: .dot (hidden), .hidden (hidden)]"
_BINARY = "binary files match too: bin.dat, late.dat"
ALL = """.shown
1|needle
a.py
2|needle = 1
latin.txt
1|needle grün
odd\\nname.txt
1|needle
src/b.py
2|    return needle
3|# needle again
src/c.ts
1|const needle = 2
src/deep/d.txt
2|needle.*
src/keep.log
1|needle
src/only/here.tmp
1|needle
utf16.txt
1|needle ü
[11 matches in 10 files; binary files match too: bin.dat, late.dat]"""


def test_content_is_grouped_by_file_and_ignored_files_stay_out(workspace: Path, search: Search) -> None:
    assert search(workspace, "needle") == ALL
    (workspace / ".git").mkdir()
    (workspace.parent / ".gitignore").write_text("*.py\n")
    assert search(workspace, "needle") == ALL, "in a repository, too"


def test_a_machine_without_ripgrep_is_served(workspace: Path) -> None:
    assert Search("no-such-program")(workspace, "needle") == ALL


def test_a_repository_inside_has_its_own_rules(tmp_path: Path, search: Search) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "inner/.git").mkdir(parents=True)
    for name in ("inner/x.log", "y.log"):
        (tmp_path / name).write_text("needle\n")
    for path in (".", "inner"):
        assert search(tmp_path, "needle", path=path) == "inner/x.log\n1|needle\n[1 match in 1 file]"


def test_rules_of_the_folders_above_hold(workspace: Path, search: Search) -> None:
    inside = ALL[ALL.index("src/b.py") : ALL.index("utf16.txt")]
    assert search(workspace, "needle", path="src") == f"{inside}[6 matches in 5 files]"


@pytest.mark.fast_rows("needle-arguments")
@pytest.mark.parametrize(
    ("pattern", "arguments", "expected"),
    [
        ("^def .*:$", {}, "src/b.py\n1|def f():\n[1 match in 1 file]"),
        ("needle", {"glob": "*.py"}, None),
        ("needle", {"glob": "*.{ts,txt}", "path": "src"}, None),
        ("needle", {"glob": "src/**/*.txt"}, "src/deep/d.txt\n2|needle.*\n[1 match in 1 file]"),
        ("(?i)^needle$", {"path": "src/deep"}, "src/deep/d.txt\n1|NEEDLE\n[1 match in 1 file]"),
        ("needle", {"path": "src/skip.log"}, "src/skip.log\n1|needle\n[1 match in 1 file]"),
        ("needle", {"path": ".hidden"}, ".hidden/x\n1|needle\n[1 match in 1 file]"),
        ("needle(?=\\.)", {}, "src/deep/d.txt\n2|needle.*\n[1 match in 1 file]"),
        ("nothing at all", {}, NOT_FOUND),
        ("f(", {}, "src/b.py\n1|def f():\n[1 match in 1 file; not a valid regex, so searched as plain text]"),
        ("-needle", {}, NOT_FOUND),
        ("[[ne]eedle$", {"path": "latin.txt"}, "[no matches]"),
        ("*.py", {"target": "names"}, "a.py\nsrc/b.py\n[2 files]"),
        ("src/**/*.t*", {"target": "names"}, "src/c.ts\nsrc/deep/d.txt\nsrc/only/here.tmp\n[3 files]"),
        ("deep", {"target": "names"}, NOT_FOUND),
        ("b.p", {"target": "names", "path": "src"}, "src/b.py\n[1 file]"),
    ],
)
def test_both_engines_give_the_same(
    workspace: Path, search: Search, pattern: str, arguments: dict[str, Any], expected: str | None
) -> None:
    text = search(workspace, pattern, **arguments)
    assert text == (expected or walk_search(workspace, pattern, **arguments))
    assert expected or "matches in 2 files" in text


@pytest.mark.slow
def test_pages_join_to_the_whole(workspace: Path, search: Search) -> None:
    assert search(workspace, "needle", limit=5).endswith(
        f"src/b.py\n2|    return needle\n[1-5 of 11 matches in 10 files; go on with offset=5; {_BINARY}]"
    )
    second = search(workspace, "needle", limit=20, offset=5)
    assert second.startswith("src/b.py\n3|# needle again\nsrc/c.ts")
    assert second.endswith(f"[6-11 of 11 matches in 10 files; {_BINARY}]")
    assert search(workspace, "needle", limit=1, offset=4).startswith("src/b.py\n2|    return")
    for offset in (11, 50):
        assert f"offset {offset} is past the last" in search(workspace, "needle", offset=offset)
    for pattern, glob in (("*", "*.py"), ("*.py", "")):
        text = search.names(workspace, pattern, glob=glob, limit=1)
        assert text == "a.py\n[1-1 of 2 files; go on with offset=1]"


def test_long_lines_are_cut(tmp_path: Path, search: Search) -> None:
    (tmp_path / "a").write_text("x" * 5_000_000 + "needle\n" + "y" * 234 + "needle\n")
    shown = "a\n1|" + "x" * 240 + "...\n2|" + "y" * 234 + "needle\n[2 matches in 1 file]"
    assert search(tmp_path, "needle") == shown


@pytest.mark.slow
def test_too_many_matches_stop_the_search(tmp_path: Path, search: Search) -> None:
    (tmp_path / "a").write_text("x\n" * 200_000)
    text = search(tmp_path, "x", limit=1)
    assert "stopped at 2" in text and "narrow the search" in text


def _program(path: Path, script: str) -> Search:
    """Make a program that plays ripgrep, outside of the workspace, whose own are never run."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Search(str(path))


async def test_a_search_that_is_stopped_reads_what_still_came(tmp_path: Path, desk: Desk) -> None:
    """asyncio leaves a pipe alone that nobody reads, and then waits for its end without an end."""
    (tmp_path / "many").write_bytes(b"a\0001:x\n" * 500_000)
    program = _program(tmp_path / "rg", f"cat '{tmp_path}/many' 2>/dev/null &\nexec sleep 100")
    async with asyncio.timeout(40):
        searching = Desk(desk.workspace, ripgrep=program.engine)
        output = await searching.acall("search_files", pattern="x", limit=1)
    assert "stopped at 2" in output.text


@pytest.mark.parametrize("prefix", ["rg: ", ""], ids=["ripgrep 14", "ripgrep 13"])
def test_a_search_names_the_files_that_it_could_not_read(tmp_path: Path, desk: Desk, prefix: str) -> None:
    """Root reads every file, so a program plays ripgrep: 13 writes no name of its own before an error."""
    error = f"{prefix}./secret: Permission denied (os error 13)"
    search = _program(tmp_path / "rg", f"printf 'a\\0001:needle\\n'\necho '{error}' >&2")
    text = search(desk.workspace, "needle")
    assert text == "a\n1|needle\n[1 match in 1 file; not searched: secret (permission denied)]"


def test_a_glob_leaves_hidden_files_out_wherever_they_lie(tmp_path: Path, search: Search) -> None:
    (tmp_path / "src").mkdir()
    for name in (".shown", "src/.shown", "src/a.py"):
        (tmp_path / name).write_text("needle\n")
    (tmp_path / ".gitignore").write_text("!.shown\n")
    assert search(tmp_path, "needle", glob="*") == "src/a.py\n1|needle\n[1 match in 1 file]"


@pytest.mark.parametrize("encoding", ["gb18030", "cp932", "utf-16-le"])
def test_text_in_other_encodings_is_found_by_its_characters(
    tmp_path: Path, search: Search, encoding: str
) -> None:
    text = "# 日本語のコメントです\n" if encoding == "cp932" else "# 标题文字说明, 返回结果\n"
    (tmp_path / "old.py").write_bytes(text.encode(encoding))
    (tmp_path / "new.py").write_text(text)
    line = f"1|{text}"
    assert search(tmp_path, text[2:5]) == f"new.py\n{line}old.py\n{line}[2 matches in 2 files]"
    assert search(tmp_path, "^# ", path="old.py") == f"old.py\n{line}[1 match in 1 file]"


@pytest.mark.parametrize("path", [".", "a.c"])
def test_a_search_names_the_binary_files_that_match(tmp_path: Path, search: Search, path: str) -> None:
    (tmp_path / "a.c").write_bytes(b"int a;\nneedle\n\0\n")
    (tmp_path / "b.c").write_bytes(b"\0")
    assert search(tmp_path, "needle", path=path) == "[no matches; binary files match too: a.c]"


@pytest.mark.slow
@pytest.mark.parametrize("path", [".", "big.log"])
def test_a_huge_file_is_searched_or_named(tmp_path: Path, search: Search, path: str) -> None:
    with (tmp_path / "big.log").open("wb") as stream:
        for _ in range(110):
            stream.write((b"x" * 99 + b"\n") * 10_000)
        stream.write(b"needle\n")
    named = "[no matches; not searched: big.log (larger than 100 mb)]"
    match = "big.log\n1100001|needle\n[1 match in 1 file]"
    assert search(tmp_path, "needle", path=path) == (match if search.engine else named)
    assert "big.log" in search.names(tmp_path, "big")


@pytest.mark.fast_rows("-x-", "walk--", "walk-pattern")
@pytest.mark.parametrize(
    ("pattern", "arguments", "error", "words"),
    [
        ("x", {"path": "../"}, ToolDenied, "outside the workspace"),
        ("x", {"path": "sr"}, BadInput, "does not exist"),
        ("x", {"glob": "[z-a]"}, BadInput, "is not a glob: z-a is not a range"),
        ("{a,b}" * 20 + "*", {"target": "names"}, BadInput, "alternatives"),
        ("*a" * 1_000, {"target": "names"}, BadInput, "longer than 1,024"),
        *((pattern, {}, BadInput, "one line of text") for pattern in ("", "a\nb", "a\0b", "\ud800")),
    ],
)
def test_refusals(
    workspace: Path, search: Search, pattern: str, arguments: dict[str, Any], error: type, words: str
) -> None:
    with pytest.raises(error, match=words):
        search(workspace, pattern, **arguments)


def test_special_files_do_not_hang(tmp_path: Path, search: Search) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert search(tmp_path, "x") == "[no matches]"


@pytest.mark.timeout(20)  # it waited for a writer
def test_an_ignore_file_that_is_no_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("a", "out/b"):
        (tmp_path / name).write_text("x\n")
    os.mkfifo(tmp_path / "out" / ".gitignore")
    (tmp_path / "rules").write_text("*\n")
    (tmp_path / ".gitignore").symlink_to("rules")  # git follows no link here, either
    text = walk_search(tmp_path, "x")
    assert all(name in text for name in ("a", "out/b"))


@pytest.mark.slow
@pytest.mark.timeout(20)  # it took 45 s, and 2 GB with a device
@pytest.mark.parametrize("name", [".gitignore", ".rgignore", ".ignore", "out/.gitignore", "../.gitignore"])
@pytest.mark.parametrize(("pattern", "target"), [("x", "content"), ("*.txt", "names")])
@pytest.mark.parametrize("is_device", [False, True], ids=["pipe", "device"])
def test_ripgrep_does_not_wait_for_an_ignore_file(
    desk: Desk, name: str, pattern: str, target: str, is_device: bool
) -> None:
    (desk.workspace / "out").mkdir()
    (desk.workspace / "out" / "b.txt").write_text("x\n")
    path = desk.workspace / name
    path.symlink_to("/dev/zero") if is_device else os.mkfifo(path)
    text = desk.text("search_files", pattern=pattern, target=target)
    assert text.startswith("out/b.txt") and "stopped" not in text


@pytest.mark.timeout(20)
def test_an_ignore_file_without_an_end_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("x\n")
    with (tmp_path / ".gitignore").open("wb") as file:
        file.truncate(1 << 40)
    assert "b.txt" in walk_search(tmp_path, "x")


def walks() -> list[int]:
    """Return the processes that search or wait for a search."""
    return [pid for pid in own_children() if "whet.tools.walk" in command_line(pid)]


def command_line(pid: int) -> str:
    """Return the command line of a process, or an empty string if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


sees_children = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs /proc to see the children"
)


@sees_children
async def test_a_pattern_that_never_ends_is_killed_on_cancel(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 40 + "b\n")

    def searching() -> list[int]:
        """Return the processes that search here; one that waits for a later search is elsewhere."""
        return [pid for pid in walks() if os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(tmp_path)]

    task = asyncio.create_task(Desk(tmp_path, ripgrep=None).acall("search_files", pattern="(a+)+$"))
    deadline = time.monotonic() + 30
    while not searching() and time.monotonic() < deadline:
        await asyncio.wait([task], timeout=0.01)
    assert searching()
    await cancel_task(task)
    assert not searching()


@sees_children
def test_one_process_serves_the_next_search_and_another_one_if_it_was_killed(workspace: Path) -> None:
    assert walk_search(workspace, "needle") == ALL
    (waiting,) = walks()
    (workspace / "new.txt").write_text("needle\n")
    assert "new.txt" in walk_search(workspace, "needle")
    assert walk_search.names(workspace, "new") == "new.txt\n[1 file]"
    assert walks() == [waiting]
    os.kill(waiting, signal.SIGKILL)
    os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
    assert "new.txt" in walk_search(workspace, "needle")
    assert waiting not in walks()


def test_a_kept_process_reports_only_the_errors_of_its_search(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as stream:
        stream.truncate(100_000_001)
    assert "not searched: big" in walk_search(tmp_path, "x")
    (tmp_path / "big").unlink()
    assert walk_search(tmp_path, "x") == "[no matches]"


@sees_children
async def test_searches_that_end_at_the_same_time_leave_at_most_one_waiting_process(workspace: Path) -> None:
    desk = Desk(workspace, ripgrep=None, workers=8)
    await asyncio.gather(*(desk.acall("search_files", pattern="needle") for _ in range(8)))
    assert len(walks()) <= 1


@pytest.mark.timeout(60)
def test_globs_of_many_stars_end(tmp_path: Path, search: Search) -> None:
    stars = "*a" * 16
    (tmp_path / ("a" * 200)).write_text("needle\n")
    (tmp_path / ".gitignore").write_text(f"{stars}*b\n{'**/a' * 16}*b/c\n")
    for pattern, text in (
        (f"{stars}*b", "[no matches]"),
        (f"{'**/*a' * 16}*b", "[no matches]"),
        (f"{stars}*", "1 file"),
    ):
        assert text in search.names(tmp_path, pattern)
    assert search(tmp_path, "needle", glob=f"{stars}*b") == "[no matches]"
    assert "1 match" in search(tmp_path, "needle", glob=f"{stars}*")


def test_a_search_without_a_match_names_the_links_that_lead_out(tmp_path: Path, search: Search) -> None:
    """https://github.com/anthropics/claude-code/issues/67526"""
    folder, drive = tmp_path / "work", tmp_path / "drive"
    (folder / "src").mkdir(parents=True)
    drive.mkdir()
    (drive / "plan.txt").write_text("needle\n")
    (folder / "src" / "a.py").write_text("other\n")
    for name, end in (("drive", drive), ("src/plan", drive / "plan.txt"), ("src/gone", drive / "none")):
        (folder / name).symlink_to(end)
    (folder / "same").symlink_to("src")
    note = "not searched: drive (a link out of the workspace), src/plan (a link out of the workspace)"
    assert search(folder, "needle") == search.names(folder, "plan.*") == f"[no matches; {note}]"
    assert search(folder, "other") == "src/a.py\n1|other\n[1 match in 1 file]"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_search_from_above_leaves_out_whets_own_home(tmp_path: Path, search: Search, is_link: bool) -> None:
    folder = tmp_path / "work"
    (folder / "state" / "memories").mkdir(parents=True)
    for name in ("state/memories/USER.md", "a.py"):
        (folder / name).write_text("needle\n")
    home = folder / "state"
    if is_link:
        home = tmp_path / ".whet"
        home.symlink_to(folder / "state")
    text = search(folder, "needle", home=home)
    assert "USER.md" not in text and "a.py" in text
    assert "USER.md" in search(folder, "needle", home=home, path="state")
