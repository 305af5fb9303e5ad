"""Searching: ripgrep and our own walk agree, ignored files stay out, nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support import cancel_task, own_children
from tests.tools.calls import Desk
from whet.contract.errors import BadInput, ToolDenied
from whet.tools import walk

ENGINES = [
    pytest.param("rg", marks=pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is not installed")),
    None,
]


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


@pytest.mark.parametrize("engine", ENGINES)
def test_content_is_grouped_by_file_and_ignored_files_stay_out(workspace: Path, engine: str | None) -> None:
    assert Desk(workspace, ripgrep=engine).text("search_files", pattern="needle") == ALL


@pytest.mark.parametrize("engine", ENGINES)
def test_searching_is_the_same_in_a_repository(workspace: Path, engine: str | None) -> None:
    (workspace / ".git").mkdir()
    (workspace.parent / ".gitignore").write_text("*.py\n")
    assert Desk(workspace, ripgrep=engine).text("search_files", pattern="needle") == ALL


@pytest.mark.parametrize("engine", ENGINES)
def test_a_repository_inside_has_its_own_rules(tmp_path: Path, engine: str | None) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "inner/.git").mkdir(parents=True)
    (tmp_path / "inner/x.log").write_text("needle\n")
    (tmp_path / "y.log").write_text("needle\n")
    for path in (".", "inner"):
        text = Desk(tmp_path, ripgrep=engine).text("search_files", pattern="needle", path=path)
        assert text == "inner/x.log\n1|needle\n[1 match in 1 file]"


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_of_the_folders_above_hold(workspace: Path, engine: str | None) -> None:
    inside = ALL[ALL.index("src/b.py") : ALL.index("utf16.txt")]
    expected = f"{inside}[6 matches in 5 files]"
    assert Desk(workspace, ripgrep=engine).text("search_files", pattern="needle", path="src") == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "^def .*:$"}, "src/b.py\n1|def f():\n[1 match in 1 file]"),
        ({"pattern": "needle", "glob": "*.py"}, None),
        ({"pattern": "needle", "glob": "*.{ts,txt}", "path": "src"}, None),
        ({"pattern": "needle", "glob": "src/**/*.txt"}, "src/deep/d.txt\n2|needle.*\n[1 match in 1 file]"),
        ({"pattern": "(?i)^needle$", "path": "src/deep"}, "src/deep/d.txt\n1|NEEDLE\n[1 match in 1 file]"),
        ({"pattern": "needle", "path": "src/skip.log"}, "src/skip.log\n1|needle\n[1 match in 1 file]"),
        ({"pattern": "needle", "path": ".hidden"}, ".hidden/x\n1|needle\n[1 match in 1 file]"),
        ({"pattern": "needle(?=\\.)"}, "src/deep/d.txt\n2|needle.*\n[1 match in 1 file]"),
        ({"pattern": "nothing at all"}, "[no matches]"),
        (
            {"pattern": "f("},
            "src/b.py\n1|def f():\n[1 match in 1 file; not a valid regex, so searched as plain text]",
        ),
        ({"pattern": "-needle"}, "[no matches]"),
        ({"pattern": "[[ne]eedle$", "path": "latin.txt"}, "[no matches]"),
        ({"pattern": "*.py", "target": "names"}, "a.py\nsrc/b.py\n[2 files]"),
        (
            {"pattern": "src/**/*.t*", "target": "names"},
            "src/c.ts\nsrc/deep/d.txt\nsrc/only/here.tmp\n[3 files]",
        ),
        ({"pattern": "deep", "target": "names"}, "[no matches]"),
        ({"pattern": "b.p", "target": "names", "path": "src"}, "src/b.py\n[1 file]"),
    ],
)
def test_both_engines_give_the_same(
    workspace: Path, engine: str | None, arguments: dict[str, str], expected: str | None
) -> None:
    text = Desk(workspace, ripgrep=engine).text("search_files", **arguments)
    assert text == (expected or Desk(workspace, ripgrep=None).text("search_files", **arguments))
    assert expected or "matches in 2 files" in text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_pages_join_to_the_whole(workspace: Path, engine: str | None) -> None:
    desk = Desk(workspace, ripgrep=engine)
    first = desk.text("search_files", pattern="needle", limit=5)
    assert first.endswith(
        f"src/b.py\n2|    return needle\n[1-5 of 11 matches in 10 files; go on with offset=5; {_BINARY}]"
    )
    second = desk.text("search_files", pattern="needle", limit=20, offset=5)
    assert second.startswith("src/b.py\n3|# needle again\nsrc/c.ts")
    assert second.endswith(f"[6-11 of 11 matches in 10 files; {_BINARY}]")
    assert desk.text("search_files", pattern="needle", limit=1, offset=4).startswith("src/b.py\n2|    return")
    assert "offset 11 is past the last" in desk.text("search_files", pattern="needle", offset=11)
    assert "offset 50 is past the last" in desk.text("search_files", pattern="needle", offset=50)
    first = desk.text("search_files", pattern="*", target="names", glob="*.py", limit=1)
    assert first == "a.py\n[1-1 of 2 files; go on with offset=1]"
    assert desk.text("search_files", pattern="*.py", target="names", limit=1) == (
        "a.py\n[1-1 of 2 files; go on with offset=1]"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_long_lines_are_cut(tmp_path: Path, engine: str | None) -> None:
    (tmp_path / "a").write_text("x" * 5_000_000 + "needle\n" + "y" * 234 + "needle\n")
    text = Desk(tmp_path, ripgrep=engine).text("search_files", pattern="needle")
    assert text == "a\n1|" + "x" * 240 + "...\n2|" + "y" * 234 + "needle\n[2 matches in 1 file]"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_too_many_matches_stop_the_search(tmp_path: Path, engine: str | None) -> None:
    (tmp_path / "a").write_text("x\n" * 200_000)
    text = Desk(tmp_path, ripgrep=engine).text("search_files", pattern="x", limit=1)
    assert "stopped at 2" in text and "narrow the search" in text


async def test_a_search_that_is_stopped_reads_what_still_came(tmp_path: Path) -> None:
    """asyncio leaves a pipe alone that nobody reads, and then waits for its end without an end."""
    (tmp_path / "many").write_bytes(b"a\0001:x\n" * 500_000)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/many' 2>/dev/null &\nexec sleep 100\n")
    program.chmod(0o755)
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work", ripgrep=str(program))  # none of the workspace's own is run
    async with asyncio.timeout(40):
        output = await desk.acall("search_files", pattern="x", limit=1)
    assert "stopped at 2" in output.text


@pytest.mark.parametrize("engine", ENGINES)
def test_a_glob_leaves_hidden_files_out_wherever_they_lie(tmp_path: Path, engine: str | None) -> None:
    for name in (".shown", "src/.shown", "src/a.py"):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / name).write_text("needle\n")
    (tmp_path / ".gitignore").write_text("!.shown\n")
    desk = Desk(tmp_path, ripgrep=engine)
    found = desk.text("search_files", pattern="needle", glob="*")
    assert found == "src/a.py\n1|needle\n[1 match in 1 file]"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("encoding", ["gb18030", "cp932", "utf-16-le"])
def test_text_in_other_encodings_is_found_by_its_characters(
    tmp_path: Path, engine: str | None, encoding: str
) -> None:
    text = "# 日本語のコメントです\n" if encoding == "cp932" else "# 标题文字说明, 返回结果\n"
    (tmp_path / "old.py").write_bytes(text.encode(encoding))
    (tmp_path / "new.py").write_text(text)
    desk = Desk(tmp_path, ripgrep=engine)
    line = f"1|{text}"
    assert desk.text("search_files", pattern=text[2:5]) == (
        f"new.py\n{line}old.py\n{line}[2 matches in 2 files]"
    )
    assert desk.text("search_files", pattern="^# ", path="old.py") == f"old.py\n{line}[1 match in 1 file]"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", [".", "a.c"])
def test_a_search_names_the_binary_files_that_match(tmp_path: Path, engine: str | None, path: str) -> None:
    (tmp_path / "a.c").write_bytes(b"int a;\nneedle\n\0\n")
    (tmp_path / "b.c").write_bytes(b"\0")
    assert Desk(tmp_path, ripgrep=engine).text("search_files", pattern="needle", path=path) == (
        "[no matches; binary files match too: a.c]"
    )


@pytest.mark.parametrize("prefix", ["rg: ", ""], ids=["ripgrep 14", "ripgrep 13"])
def test_a_search_names_the_files_that_it_could_not_read(tmp_path: Path, prefix: str) -> None:
    """Root reads every file, so a program plays ripgrep: 13 writes no name of its own before an error."""
    program = tmp_path / "bin" / "rg"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nprintf 'a\\0001:needle\\n'\n"
        f"echo '{prefix}./secret: Permission denied (os error 13)' >&2\n"
    )
    program.chmod(0o755)
    workspace = tmp_path / "work"
    workspace.mkdir()
    text = Desk(workspace, ripgrep=str(program)).text("search_files", pattern="needle")
    assert text == "a\n1|needle\n[1 match in 1 file; not searched: secret (permission denied)]"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", [".", "big.log"])
def test_a_huge_file_is_searched_or_named(tmp_path: Path, engine: str | None, path: str) -> None:
    with (tmp_path / "big.log").open("wb") as stream:
        for _ in range(110):
            stream.write((b"x" * 99 + b"\n") * 10_000)
        stream.write(b"needle\n")
    expected = (
        "big.log\n1100001|needle\n[1 match in 1 file]"
        if engine
        else "[no matches; not searched: big.log (larger than 100 mb)]"
    )
    desk = Desk(tmp_path, ripgrep=engine)
    assert desk.text("search_files", pattern="needle", path=path) == expected
    assert "big.log" in desk.text("search_files", pattern="big", target="names")


@pytest.mark.parametrize("engine", ENGINES)
def test_refusals(workspace: Path, engine: str | None) -> None:
    desk = Desk(workspace, ripgrep=engine)
    assert isinstance(desk.error("search_files", pattern="x", path="../"), ToolDenied)
    assert "does not exist" in desk.error("search_files", pattern="x", path="sr").message
    assert "is not a glob" in desk.error("search_files", pattern="x", glob="[z-a]").message
    for pattern in ("", "a\nb", "a\0b", "\ud800"):
        assert isinstance(desk.error("search_files", pattern=pattern), BadInput)


def test_special_files_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for engine in ("rg", None):
        assert Desk(tmp_path, ripgrep=engine).text("search_files", pattern="x") == "[no matches]"


@pytest.mark.timeout(20)  # it waited for a writer
def test_an_ignore_file_that_is_no_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / ".gitignore")
    (tmp_path / "out" / "b").write_text("x\n")
    (tmp_path / "rules").write_text("*\n")
    (tmp_path / ".gitignore").symlink_to("rules")  # git follows no link here, either
    found = Desk(tmp_path, ripgrep=None).text("search_files", pattern="x")
    assert all(name in found for name in ("a", "out/b"))


@pytest.mark.slow
@pytest.mark.timeout(20)  # it took 45 s, and 2 GB with a device
@pytest.mark.parametrize("name", [".gitignore", ".rgignore", ".ignore", "out/.gitignore", "../.gitignore"])
@pytest.mark.parametrize("target", ["content", "names"])
@pytest.mark.parametrize("is_device", [False, True], ids=["pipe", "device"])
def test_ripgrep_does_not_wait_for_an_ignore_file(
    tmp_path: Path, name: str, target: str, is_device: bool
) -> None:
    (tmp_path / "work" / "out").mkdir(parents=True)
    (tmp_path / "work" / "out" / "b.txt").write_text("x\n")
    path = tmp_path / "work" / name
    path.symlink_to("/dev/zero") if is_device else os.mkfifo(path)
    pattern = "x" if target == "content" else "*.txt"
    found = Desk(tmp_path / "work").text("search_files", pattern=pattern, target=target)
    assert found.startswith("out/b.txt") and "stopped" not in found


@pytest.mark.timeout(20)
def test_an_ignore_file_without_an_end_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("x\n")
    with (tmp_path / ".gitignore").open("wb") as file:
        file.truncate(1 << 40)
    assert "b.txt" in Desk(tmp_path, ripgrep=None).text("search_files", pattern="x")


def test_a_machine_without_ripgrep_is_served(workspace: Path) -> None:
    assert Desk(workspace, ripgrep="no-such-program").text("search_files", pattern="needle") == ALL


def walks() -> list[int]:
    """Return the processes that search or wait for a search."""
    return [pid for pid in own_children() if "whet.tools.walk" in command_line(pid)]


def command_line(pid: int) -> str:
    """Return the command line of a process, or an empty string if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the children")
async def test_a_pattern_that_never_ends_is_killed_on_cancel(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 40 + "b\n")
    desk = Desk(tmp_path, ripgrep=None)

    def searching() -> list[int]:
        """Return the processes that search here; one that waits for a later search is elsewhere."""
        return [pid for pid in walks() if os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(tmp_path)]

    task = asyncio.create_task(desk.acall("search_files", pattern="(a+)+$"))
    deadline = time.monotonic() + 30
    while not searching() and time.monotonic() < deadline:
        await asyncio.wait([task], timeout=0.01)
    assert searching()
    await cancel_task(task)
    assert not searching()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the children")
def test_one_process_serves_the_next_search(workspace: Path) -> None:
    desk = Desk(workspace, ripgrep=None)
    first = desk.text("search_files", pattern="needle")
    (waiting,) = walks()
    (workspace / "new.txt").write_text("needle\n")
    assert desk.text("search_files", pattern="needle") != first
    assert desk.text("search_files", pattern="new", target="names") == "new.txt\n[1 file]"
    assert walks() == [waiting]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the children")
def test_a_search_does_not_need_the_process_that_was_kept(workspace: Path) -> None:
    desk = Desk(workspace, ripgrep=None)
    assert desk.text("search_files", pattern="needle") == ALL
    (waiting,) = walks()
    os.kill(waiting, signal.SIGKILL)
    os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
    assert desk.text("search_files", pattern="needle") == ALL
    assert waiting not in walks()


def test_a_kept_process_reports_only_the_errors_of_its_search(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as stream:
        stream.truncate(walk.FILE_BYTES + 1)
    desk = Desk(tmp_path, ripgrep=None)
    assert "not searched: big" in desk.text("search_files", pattern="x")
    (tmp_path / "big").unlink()
    assert desk.text("search_files", pattern="x") == "[no matches]"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the children")
async def test_searches_that_end_at_the_same_time_leave_at_most_one_waiting_process(workspace: Path) -> None:
    desk = Desk(workspace, ripgrep=None, workers=8)
    await asyncio.gather(*(desk.acall("search_files", pattern="needle") for _ in range(8)))
    assert len(walks()) <= 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("engine", ENGINES)
def test_globs_of_many_stars_end(tmp_path: Path, engine: str | None) -> None:
    stars = "*a" * 16
    (tmp_path / ("a" * 200)).write_text("needle\n")
    (tmp_path / ".gitignore").write_text(f"{stars}*b\n{'**/a' * 16}*b/c\n")
    desk = Desk(tmp_path, ripgrep=engine)
    assert desk.text("search_files", pattern=f"{stars}*b", target="names") == "[no matches]"
    assert desk.text("search_files", pattern=f"{'**/*a' * 16}*b", target="names") == "[no matches]"
    assert "1 file" in desk.text("search_files", pattern=f"{stars}*", target="names")
    assert desk.text("search_files", pattern="needle", glob=f"{stars}*b") == "[no matches]"
    assert "1 match" in desk.text("search_files", pattern="needle", glob=f"{stars}*")


def test_a_glob_with_too_many_alternatives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="alternatives"):
        Desk(tmp_path).text("search_files", pattern="{a,b}" * 20 + "*", target="names")
    with pytest.raises(BadInput, match=r"longer than 1,024"):
        Desk(tmp_path).text("search_files", pattern="*a" * 1_000, target="names")
    with pytest.raises(BadInput, match="z-a is not a range"):
        Desk(tmp_path).text("search_files", pattern="[z-a]", target="names")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_search_without_a_match_names_the_links_that_lead_out(tmp_path: Path, engine: str | None) -> None:
    """https://github.com/anthropics/claude-code/issues/67526"""
    folder, drive = tmp_path / "work", tmp_path / "drive"
    (folder / "src").mkdir(parents=True)
    drive.mkdir()
    (drive / "plan.txt").write_text("needle\n")
    (folder / "src" / "a.py").write_text("other\n")
    for name, end in (("drive", drive), ("src/plan", drive / "plan.txt"), ("src/gone", drive / "none")):
        (folder / name).symlink_to(end)
    (folder / "same").symlink_to("src")
    desk = Desk(folder, ripgrep=engine)
    note = "not searched: drive (a link out of the workspace), src/plan (a link out of the workspace)"
    assert desk.text("search_files", pattern="needle") == f"[no matches; {note}]"
    assert desk.text("search_files", pattern="plan.*", target="names") == f"[no matches; {note}]"
    assert desk.text("search_files", pattern="other") == "src/a.py\n1|other\n[1 match in 1 file]"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_link", [False, True])
def test_a_search_from_above_leaves_out_whets_own_home(
    tmp_path: Path, engine: str | None, is_link: bool
) -> None:
    folder = tmp_path / "work"
    (folder / "state" / "memories").mkdir(parents=True)
    (folder / "state" / "memories" / "USER.md").write_text("needle\n")
    (folder / "a.py").write_text("needle\n")
    home = folder / "state"
    if is_link:
        home = tmp_path / ".whet"
        home.symlink_to(folder / "state")
    desk = Desk(folder, ripgrep=engine, home=home)
    assert "USER.md" not in desk.text("search_files", pattern="needle")
    assert "a.py" in desk.text("search_files", pattern="needle")
    assert "USER.md" in desk.text("search_files", pattern="needle", path="state")
