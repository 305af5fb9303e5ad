"""Trees that are odd but lawful come back whole; what can't be recorded is named and stays as it is."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from tests.rewind.trees import back, fingerprint, step
from tests.tools.test_form import FORMS, TEXTS, make_bytes
from whet.rewind import database
from whet.rewind.differences import FileDiff, list_differences
from whet.rewind.planning import UNRECORDED_NOW, UNRECORDED_THEN
from whet.rewind.recorder import Workspace, describe_left_out

_GIT = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always"
_CHANGES = {
    "a file with holes": ("truncate -s 3M s; echo x | dd of=s bs=1 seek=2000000 conv=notrunc", "echo y > s"),
    "bits of owners": (
        "echo a > p; chmod 6755 p; mkdir d g; chmod 1777 d; chmod 2775 g",
        "chmod 644 p; rm -rf d g; echo b >> p",
    ),
    "names that differ in case alone": (
        "echo a > Read.md; mkdir Dir; echo b > Dir/f",
        "mv Read.md read.md; mv Dir dir",
    ),
    "names of raw bytes": ("printf x > $'a\\xff\\nb'; mkdir $'d\\xfe'; echo z > $'d\\xfe/q'", "rm -rf ./*"),
    "links in circles and into the wide": (
        "ln -s a b; ln -s b a; ln -s . self; ln -s /nowhere dangling; ln -s / slash",
        "rm a b self slash; ln -sfn /etc dangling; mkdir slash; echo x > slash/y",
    ),
    "a folder that becomes a link": ("mkdir d; echo x > d/f", "mv d e; ln -s e d"),
    "folders that change places": (
        "mkdir a b; echo 1 > a/x; echo 2 > b/x; echo 3 > b/y",
        "mv a t; mv b a; mv t b",
    ),
    "a file in place of a folder, and one the other way": (
        "mkdir d e; echo a > d/x; echo b > f",
        "rm -rf d; echo n > d; rm f; mkdir f; echo q > f/d; rmdir e; mv d e",
    ),
    "files of two names": ("echo a > f; ln f g; ln f h", "echo b > f; rm h; rm g; echo x > g; ln -f g f"),
    "a folder that nobody may write": ("mkdir d; echo a > d/f; chmod 555 d", "chmod 755 d; rm -rf d"),
    "names that begin alike": (
        "mkdir d; echo 1 > d/x; echo 2 > d.x; echo 3 > 'd x'; echo 4 > d-",
        "rm -rf d d.x; mkdir d.x; echo y > d.x/q",
    ),
    "one folder in another, 100 deep": (
        "p=d; for i in $(seq 100); do p=$p/d; done; mkdir -p $p; echo a > $p/f",
        "rm -rf d",
    ),
    "letters in two forms": (
        "printf a > $'e\\u0301'; printf b > $'\\u00e9'",
        "mv $'e\\u0301' x; mv $'\\u00e9' $'e\\u0301'; mv x $'\\u00e9'",
    ),
    "a repository within": (
        f"mkdir r; cd r; {_GIT} init -q; echo a > a; {_GIT} add .; {_GIT} commit -qm a",
        f"cd r; echo b > a; {_GIT} commit -qam b; {_GIT} gc -q; rm -rf .git/refs",
    ),
}


@pytest.mark.fast_rows(
    "a file in place",
    "a folder that becomes",
    "nobody may write",
    "of two names",
    "names of raw bytes",
    "a repository within",
    "links in circles",
)
@pytest.mark.parametrize("kind", _CHANGES)
def test_an_odd_tree_is_what_it_was(workspace: Workspace, root: Path, kind: str) -> None:
    before, change = _CHANGES[kind]
    subprocess.run(["bash", "-c", before], cwd=root, check=True, capture_output=True)
    was = fingerprint(root)
    first = step(workspace, change)
    assert fingerprint(root) != was
    done = back(workspace, first)
    assert not done.conflicts and not done.failed and fingerprint(root) == was


def test_a_pipe_that_comes_or_goes_is_named_and_left(workspace: Workspace, root: Path) -> None:
    (root / "file").write_text("a\n")
    os.mkfifo(root / "pipe")
    first = step(workspace, "rm pipe file; echo b > pipe; mkfifo file; echo c > new")
    assert "file (a named pipe)" in describe_left_out(workspace.left_out())
    done = back(workspace, first)
    assert {conflict.path: conflict.why for conflict in done.conflicts} == {
        "pipe": UNRECORDED_THEN,
        "file": UNRECORDED_NOW,
    }
    assert (root / "pipe").read_text() == "b\n" and not (root / "new").exists()


@pytest.mark.slow
def test_a_submodule_and_its_repository_come_back(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    before = (
        f"cd {other}; {_GIT} init -q; echo a > a; {_GIT} add .; {_GIT} commit -qm a; cd {root};"
        f" {_GIT} init -q; {_GIT} submodule add -q {other} sub; {_GIT} commit -qm b"
    )
    subprocess.run(["bash", "-ec", before], check=True, capture_output=True)
    was = fingerprint(root)
    change = (
        f"exec >/dev/null; (cd sub; echo c >> a; {_GIT} commit -qam c); {_GIT} add sub; {_GIT} commit -qm d;"
        f" {_GIT} submodule deinit -qf sub; rm -rf .git/modules/sub"
    )
    done = back(workspace, step(workspace, change))
    assert not done.conflicts and fingerprint(root) == was


def test_of_a_repository_around_the_workspace_only_the_workspace_comes_back(
    workspace: Workspace, root: Path
) -> None:
    (root / "f").write_text("a\n")
    around = f"cd ..; {_GIT} init -q .; {_GIT} add work; {_GIT} commit -qm a"
    subprocess.run(["bash", "-ec", around], cwd=root, check=True, capture_output=True)
    done = back(workspace, step(workspace, f"echo b > f; {_GIT} commit -qam b"))
    assert not done.conflicts and (root / "f").read_text() == "a\n"
    status = subprocess.run(
        ["git", "status", "--short"], cwd=root, capture_output=True, text=True, check=True
    )
    assert status.stdout.split() == ["M", "f", "??", "../home/"]  # the commit stands: it lies outside


def test_somebody_who_writes_all_the_while_keeps_nothing_from_being_taken_back(
    workspace: Workspace, root: Path
) -> None:
    (root / "mine").write_text("was mine\n")
    (root / "theirs").write_text("0\n")
    stop, last = threading.Event(), [0]

    def write() -> None:
        while not stop.is_set():
            last[0] += 1
            for name in ("theirs", f"new{last[0] % 7}"):
                (root / name).write_text(f"{last[0]}\n")
            (root / f"new{(last[0] + 3) % 7}").unlink(missing_ok=True)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        firsts = [step(workspace, f"echo {number} > mine", number=number) for number in range(1, 6)]
        assert last[0] > 5
        done = back(workspace, firsts[0])
    finally:
        stop.set()
        thread.join()
    assert (root / "mine").read_text() == "was mine\n"
    assert "mine" not in {conflict.path for conflict in done.conflicts}
    assert (root / "theirs").read_text().removesuffix("\n").isdecimal()


def _diff(record: Workspace) -> list[FileDiff]:
    return record.file.read_now(lambda db: list_differences(db, database.list_records(db, "s")))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_files_of_every_form_are_shown_in_a_diff_and_come_back(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    for number, form in enumerate(FORMS):
        (root / f"{number}.txt").write_bytes(make_bytes(*form))
    was = fingerprint(root)
    (tmp_path / "forms.txt").write_text("".join(f"{form[0]}\n" for form in FORMS))
    change = "\n".join(
        (
            "for number, name in enumerate(open('../forms.txt').read().split()):",
            "    data = open(f'{number}.txt', 'rb').read()",
            "    data = data.replace('x = 1'.encode(name), 'x = 7'.encode(name))",
            "    open(f'{number}.txt', 'wb').write(data)",
        )
    )
    first = step(workspace, f"python3 - <<'END'\n{change}\nEND")
    diffs = {diff.path: diff for diff in _diff(workspace)}
    for number, form in enumerate(FORMS):
        lines = diffs[f"{number}.txt"].lines
        assert "-x = 1" in lines and "+x = 7" in lines and f" {TEXTS[form[0]].strip()}" in lines, form
    done = back(workspace, first)
    assert not done.conflicts and not done.failed and fingerprint(root) == was


@pytest.mark.parametrize(
    ("line", "header"), [(1, "-1,4 +1,5"), (400, "-398,6 +398,7"), (800, "-798,3 +798,4")]
)
def test_a_diff_of_a_long_file_of_like_lines_shows_the_new_line_alone(
    workspace: Workspace, root: Path, line: int, header: str
) -> None:
    (root / "f").write_text("same\nother\n" * 400)
    step(workspace, f"sed -i '{line}a new' f")
    [diff] = _diff(workspace)
    assert (diff.added, diff.removed, diff.lines[2]) == (1, 0, f"@@ {header} @@")


def test_a_diff_names_a_change_of_line_ends(workspace: Workspace, root: Path) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    step(workspace, "printf 'one\\ntwo\\n' > a.txt")
    [diff] = _diff(workspace)
    assert (diff.lines, diff.note) == ([], "line ends, encoding or last newline")


def test_a_name_with_a_newline_fakes_no_line_of_a_diff(workspace: Workspace) -> None:
    step(workspace, "echo x > $'a\\n+++ other\\x1b[31m'")
    [diff] = _diff(workspace)
    assert diff.path == r"a\n+++ other\x1b[31m"
    assert all("\n" not in line and "\x1b" not in line for line in diff.lines)
