"""Folders of linked packages: nothing is copied until a command writes there, whichever way it does so."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import made_jail, run
from whet.contract.errors import ToolError
from whet.sandbox.hardlinks import links_of
from whet.sandbox.jail import Jail

_FILES = 240
_PACKAGES = "env/lib/site"


@pytest.fixture(params=ENGINES[:2], ids=str)
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jail]:
    """A jail around a folder with linked packages, of an engine with mounts of its own."""
    case: EngineCase = request.param
    for number in range(_FILES):
        cached = tmp_path / "cache" / f"{number}.py"
        linked = tmp_path / "ws" / _PACKAGES / f"p{number % 12}" / f"{number}.py"
        for path in (cached, linked):
            path.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text("safe\n")
        os.link(cached, linked)
    with made_jail(case, tmp_path) as made:
        yield made


def cached_texts(jail: Jail) -> set[tuple[str, int]]:
    """Return the content and mode of every file in the cache."""
    cache = jail.policy.workspace.parent / "cache"
    return {(path.read_text(), path.stat().st_mode & 0o777) for path in cache.iterdir()}


def paths_of(jail: Jail) -> set[str]:
    return {str(path) for path in (jail.policy.workspace / _PACKAGES).rglob("*")}


def linked_files(jail: Jail) -> int:
    """Return how many files of the workspace are still those of the cache."""
    return sum(path.stat().st_nlink > 1 for path in jail.policy.workspace.rglob("*.py"))


@pytest.mark.fast_rows("bubblewrap")
def test_a_command_that_writes_elsewhere_copies_nothing(jail: Jail) -> None:
    text = 'echo new > own; mkdir -p env/lib; mkdir made; mv own made/; python3 -c \'open("x", "w")\''
    assert run(jail, f"{text}; cat {_PACKAGES}/p1/1.py") == (0, "safe\n")
    assert linked_files(jail) == _FILES
    assert (jail.policy.workspace / "made/own").read_text() == "new\n"


WAYS = [
    f"echo EVIL >> {_PACKAGES}/p1/1.py",
    f"cd {_PACKAGES}/p1 && echo EVIL >> 1.py",
    f"truncate -s 0 {_PACKAGES}/p1/1.py",
    f"chmod 777 {_PACKAGES}/p1/1.py && echo EVIL >> {_PACKAGES}/p1/1.py",
    f"touch -d @5 {_PACKAGES}/p1/1.py",
    "ln -s env led && echo EVIL >> led/lib/site/p1/1.py",
    "ln -s $PWD/env /tmp/led && echo EVIL >> /tmp/led/lib/site/p1/1.py",
    f"ln {_PACKAGES}/p1/1.py other && echo EVIL >> other",
    f"mv {_PACKAGES}/p1/1.py other && echo EVIL >> other",
    "mv env moved && echo EVIL >> moved/lib/site/p1/1.py",
    f"rm -r {_PACKAGES}/p1 && rm {_PACKAGES}/*/2.py && mkdir {_PACKAGES}/p1",
    f"python3 -c 'import shutil; shutil.rmtree(\"{_PACKAGES}\")' && mkdir {_PACKAGES}",
    f"echo new > {_PACKAGES}/p1/new.py && mkdir {_PACKAGES}/q && mv {_PACKAGES}/p1/new.py {_PACKAGES}/q",
    "cp -r env/lib/site/p1 copy && mv copy env/lib/site/p99",
    "rm -r env && mkdir env && echo new > env/new",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", WAYS)
def test_a_command_that_writes_there_succeeds_and_changes_no_cache(jail: Jail, text: str) -> None:
    run(jail, "echo elsewhere > own")
    assert linked_files(jail) == _FILES
    assert run(jail, text) == (0, "")
    assert cached_texts(jail) == {("safe\n", 0o644)}
    assert run(jail, f"{text.partition('&&')[0]} 2>&1 | tail -n 0; echo still > own; cat own") == (
        0,
        "still\n",
    )
    assert cached_texts(jail) == {("safe\n", 0o644)}


OLDER = [
    "exec 7<env/lib/site/p1/1.py; echo x > env/lib/site/new; F=/proc/self/fd/7; chmod 777 $F;"
    " echo EVIL > $F; touch -d @5 $F; truncate -s 0 $F",
    "exec 7<env/lib/site/p1/1.py; rm -r env; F=/proc/self/fd/7; echo EVIL > $F; ln -L $F x; echo EVIL > x",
    "python3 -c 'import os; r = os.open(\"env/lib/site/p1/1.py\", 0); os.fchmod(r, 0o777)'",
    'python3 -c \'import os; d = os.open("env/lib/site", 0); os.open("p1/1.py", os.O_TRUNC, dir_fd=d)\'',
    'python3 -c \'import os; r = os.open("env/lib/site/p1/1.py", 0); open("env/lib/site/new", "w");'
    " os.utime(r, (5, 5))'",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", OLDER)
def test_a_file_that_was_opened_before_the_copies_stays_as_it_is(jail: Jail, text: str) -> None:
    before = (jail.policy.workspace.parent / "cache/1.py").stat().st_mtime_ns
    run(jail, text)
    assert cached_texts(jail) == {("safe\n", 0o644)}
    assert (jail.policy.workspace.parent / "cache/1.py").stat().st_mtime_ns == before


@pytest.mark.slow
def test_deleting_packages_copies_none(jail: Jail) -> None:
    assert run(jail, f"rm -r {_PACKAGES}/p1 && echo x > own && ls {_PACKAGES}/p1") == (
        2,
        "ls: cannot access 'env/lib/site/p1': No such file or directory\n",
    )
    assert linked_files(jail) == _FILES - _FILES // 12
    assert run(jail, f"rm {_PACKAGES}/p2; rmdir {_PACKAGES}/p2 {_PACKAGES}/no")[1].splitlines() == [
        "rm: cannot remove 'env/lib/site/p2': Is a directory",
        "rmdir: failed to remove 'env/lib/site/p2': Directory not empty",
        "rmdir: failed to remove 'env/lib/site/no': No such file or directory",
    ]
    assert run(jail, "rm -r env && ls") == (0, "own\n")
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_a_command_that_another_one_made_the_folder_writable_for_can_move_it(jail: Jail) -> None:
    assert run(jail, f"echo x > {_PACKAGES}/new")[0] == 0
    assert run(jail, "mv env other && rm -r other && ls") == (0, "")
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_packages_that_are_linked_anew_meanwhile_are_copied(jail: Jail, tmp_path: Path) -> None:
    workspace = jail.policy.workspace
    run(jail, "echo x > own")
    (workspace / "env").rename(tmp_path / "old")
    again = workspace / _PACKAGES / "p1/1.py"
    again.parent.mkdir(parents=True)
    os.link(tmp_path / "cache/1.py", again)
    jail.links.expect_changes()
    assert run(jail, f"echo more >> {_PACKAGES}/p1/1.py; cat {_PACKAGES}/p1/1.py") == (0, "safe\nmore\n")
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_what_another_program_linked_there_since_is_copied_too(jail: Jail, tmp_path: Path) -> None:
    run(jail, "echo x > own")
    os.link(tmp_path / "cache/1.py", jail.policy.workspace / _PACKAGES / "again.py")
    assert run(jail, f"echo x > {_PACKAGES}/new; echo EVIL >> {_PACKAGES}/again.py") == (0, "")
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_a_folder_with_an_outside_socket_is_copied_first_so_that_its_mount_stays(jail: Jail) -> None:
    path = jail.policy.workspace / _PACKAGES / "p1" / "s"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(str(path))
        outside.listen()
        connect = f"import socket; socket.socket(1).connect('{_PACKAGES}/p1/s')"
        for text in ("echo x > own", f"echo x > {_PACKAGES}/p1/new"):
            run(jail, text)
            assert run(jail, f'python3 -c "{connect}"')[0] == 1
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_many_processes_that_write_at_once_all_get_an_answer(jail: Jail) -> None:
    text = (
        "for n in $(seq 20); do (echo $n > a$n; echo $n > env/lib/site/n$n) & done; wait; cat env/lib/site/n*"
    )
    code, printed = run(jail, text)
    assert code == 0 and sorted(map(int, printed.split())) == list(range(1, 21))
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_folders_are_copied_once_a_command_has_asked_as_long_as_copying_takes(jail: Jail) -> None:
    text = (
        'import os\nfor n in range(7_000):\n  open("own", "w").close(); os.rename("own", "b"); os.unlink("b")'
    )
    assert run(jail, f"python3 -c '{text}'") == (0, "")
    assert linked_files(jail) == 0 and cached_texts(jail) == {("safe\n", 0o644)}
    assert run(jail, f"echo x >> {_PACKAGES}/p1/1.py; cat {_PACKAGES}/p1/1.py") == (0, "safe\nx\n")
    assert cached_texts(jail) == {("safe\n", 0o644)}


@pytest.mark.slow
def test_where_only_landlock_holds_files_are_copied_first(tmp_path: Path) -> None:
    with made_jail(ENGINES[2], tmp_path) as plain:
        for number in range(_FILES):
            cached, linked = tmp_path / "cache" / f"{number}.py", tmp_path / "ws/lib" / f"{number}.py"
            for path in (cached, linked):
                path.parent.mkdir(parents=True, exist_ok=True)
            cached.write_text("safe\n")
            os.link(cached, linked)
        assert run(plain, "echo x >> lib/1.py") == (0, "")
        assert linked_files(plain) == 0
        assert cached_texts(plain) == {("safe\n", 0o644)}


@pytest.mark.slow
@pytest.mark.parametrize("text", WAYS)
def test_folders_are_recorded_before_a_command_changes_them(jail: Jail, text: str) -> None:
    records: list[tuple[frozenset[str], set[str]]] = []
    before = paths_of(jail)
    links = links_of(jail.policy)
    held = links.hold_trees(lambda held: records.append((held, paths_of(jail))))
    others: list[frozenset[str]] = []
    assert held == links.hold_trees(others.append) == {_PACKAGES}
    run(jail, "echo elsewhere > own; mkdir -p env/lib; cat env/lib/site/p1/1.py")
    assert {held for held, _ in records} == {frozenset({_PACKAGES})}
    run(jail, text)
    first = next(paths for held, paths in records if not held)
    assert before <= first and linked_files(jail) < _FILES
    assert others == [held for held, _ in records]


@pytest.mark.fast_rows("echo EVIL")
@pytest.mark.parametrize("text", ["echo EVIL >> env/lib/site/p1/1.py", "rm env/lib/site/p1/1.py"])
def test_a_folder_that_cannot_be_recorded_is_not_changed(jail: Jail, text: str) -> None:
    is_busy = True

    def record(held: frozenset[str]) -> None:
        if is_busy and not held:
            raise ToolError("another session is recording this workspace")

    links_of(jail.policy).hold_trees(record)
    before = paths_of(jail)
    for _ in range(2):  # the gate still answers after a refusal
        code, output = run(jail, f"{text} 2>&1")
        assert code != 0 and "Read-only file system" in output
    assert paths_of(jail) == before and linked_files(jail) == _FILES
    is_busy = False
    assert run(jail, text)[0] == 0
    assert linked_files(jail) < _FILES
