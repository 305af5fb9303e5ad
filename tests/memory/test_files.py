"""Files of learning on disk: read as they are, swapped without losing an edit, skills within their bounds."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import each
from whet.config import front_matter
from whet.config.paths import lock_folder
from whet.contract.errors import ConfigError, StoreUnwritable
from whet.memory import disk, skill_format
from whet.memory.skill_format import BadSkill, check_name, check_path, list_files
from whet.store.ledger import hash_text


def test_what_is_there_is_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    assert disk.read(file) is None and disk.read_text(file) is None
    file.write_bytes(b"x" * 10)
    assert disk.read(file, 10) == b"x" * 10
    with pytest.raises(ConfigError, match="10 bytes, more than the 9"):
        disk.read(file, 9)
    big = os.urandom(3_000_000)
    file.write_bytes(big)
    assert disk.read(file, 3_000_000) == big


def test_what_can_not_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes(b"\xef\xbb\xbfone\n")
    assert disk.read_text(file) == "one\n"
    file.write_bytes(b"one\ntwo\n\xff")
    with pytest.raises(ConfigError, match="line 3 is not UTF-8"):
        disk.read_text(file)
    with pytest.raises(ConfigError, match="is not a folder"):
        disk.read(file / "below")


def test_a_swap_replaces_only_what_was_expected_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.md"
    disk.swap(file, "", b"one")
    assert file.read_bytes() == b"one" and file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.chmod(0o644)
    disk.swap(file, hash_text(b"one"), b"two")
    assert file.read_bytes() == b"two" and file.stat().st_mode & 0o777 == 0o644
    for expected in (hash_text(b"one"), ""):
        with pytest.raises(disk.Moved):
            disk.swap(file, expected, b"three")
        assert file.read_bytes() == b"two"
    disk.swap(file, hash_text(b"two"), None)
    assert not file.exists()
    with pytest.raises(disk.Moved):
        disk.swap(file, hash_text(b"two"), b"three")
    assert [path.name for path in file.parent.iterdir()] == []


def test_a_link_or_folder_in_the_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"one")
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to("real")
    folder.mkdir()
    for path in (link, folder):
        with pytest.raises(ConfigError):
            disk.swap(path, hash_text(b"one"), b"two")
    assert (tmp_path / "real").read_bytes() == b"one" and link.is_symlink()


def test_a_folder_that_takes_no_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with pytest.raises(StoreUnwritable, match="can't write"):
        disk.swap(tmp_path / "plain" / "a.md", "", b"x")
    with pytest.raises(StoreUnwritable, match="can't write in"), lock_folder(tmp_path / "plain" / "x"):
        pass


@pytest.mark.parametrize("was_there", [True, False])
def test_a_file_that_somebody_saves_in_the_very_moment_is_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    path, link = tmp_path / "a.md", os.link
    if was_there:
        path.write_text("old")

    def save_first(source: Path, target: Path) -> None:
        path.write_text("theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", save_first)
    with pytest.raises(disk.Moved):
        disk.swap(path, hash_text(b"old") if was_there else "", b"ours")
    assert path.read_text() == "theirs" and [entry.name for entry in tmp_path.iterdir()] == ["a.md"]


def test_what_a_crash_set_aside_goes_back_unless_somebody_wrote_again(tmp_path: Path) -> None:
    file, aside = tmp_path / "a.md", tmp_path / ".a.md.before"
    aside.write_text("old")
    (tmp_path / ".a.md.new").write_text("half")
    disk.restore_aside(file)
    assert file.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["a.md"]
    aside.write_text("older")
    disk.restore_aside(file)
    assert file.read_text() == "old" and not aside.exists()
    aside.symlink_to("a.md")
    disk.restore_aside(file)
    assert aside.is_symlink(), "what is not a file of ours is left"


def test_empty_folders_go_up_to_the_top_which_stays(tmp_path: Path) -> None:
    deep = tmp_path / "skills" / "one" / "references"
    deep.mkdir(parents=True)
    disk.drop_empty(deep, tmp_path / "skills")
    assert (tmp_path / "skills").is_dir() and not (tmp_path / "skills" / "one").exists()
    deep.mkdir(parents=True)
    (deep.parent / "SKILL.md").write_text("x")
    disk.drop_empty(deep, tmp_path / "skills")
    assert deep.parent.is_dir() and not deep.exists()
    (deep.parent / "SKILL.md").unlink()
    disk.drop_empty(deep.parent, tmp_path / "elsewhere")
    assert deep.parent.is_dir()


def test_one_process_at_a_time_has_the_folder(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "memories"):
        handle = os.open(tmp_path / "memories" / ".lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    assert (tmp_path / "memories" / ".lock").stat().st_mode & 0o777 == 0o600


def skill(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_skills_files_without_hidden_ones(tmp_path: Path) -> None:
    root = skill(
        tmp_path / "s", a_md="1", SKILL_md="2", references__b_md="3", **{".hidden": "4", ".git__x": "5"}
    )
    assert list_files(root) == ["SKILL.md", "a.md", "references/b.md"]


def link_inside(root: Path) -> None:
    (root / "a").symlink_to("/etc")


def link_hidden(root: Path) -> None:
    (root / ".a").symlink_to("/etc/hostname")


def pipe(root: Path) -> None:
    os.mkfifo(root / "a")


def many(root: Path) -> None:
    for number in range(200):
        (root / f"f{number}").write_text("")


def large(root: Path) -> None:
    (root / "a").write_bytes(b"x" * 5_000_000)


def deep(root: Path) -> None:
    (root / "1/2/3/4/5/6/7").mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (link_inside, "s/a is a symbolic link"),
        (link_hidden, "s/.a is a symbolic link"),
        (pipe, "not a plain file"),
        (many, "more than 200 files"),
        (large, "larger than 5 MB"),
        (deep, "deeper than 6"),
    ],
)
def test_a_folder_that_can_be_no_skill(tmp_path: Path, spoil: Callable[[Path], None], says: str) -> None:
    root = skill(tmp_path / "s", SKILL_md="x")
    spoil(root)
    with pytest.raises(BadSkill, match=says):
        list_files(root)


def test_the_bounds_themselves_are_allowed(tmp_path: Path) -> None:
    root = skill(tmp_path / "s", SKILL_md="x")
    for number in range(198):
        (root / f"f{number}").write_text("")
    (root / "a").write_bytes(b"x" * 4_999_999)
    (root / "1/2/3/4/5/6").mkdir(parents=True)
    assert len(list_files(root)) == 200


@pytest.mark.parametrize(
    ("path", "tidied"),
    [
        ("references/a.md", "references/a.md"),
        (".//references\\a.md", "references/a.md"),
        ("1/2/3/4/5/6", "1/2/3/4/5/6"),
        ("a" * 200, "a" * 200),
    ],
)
def test_a_path_is_tidied(path: str, tidied: str) -> None:
    assert check_path(path) == tidied


@pytest.mark.parametrize(
    "path", ["", ".", "./", "/a", "~a", "../a", "a/../b", "a\0b", "a/.b", "a\tb", "1/2/3/4/5/6/7", "a" * 201]
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(BadSkill):
        check_path(path)


@pytest.mark.parametrize("name", ["a", "0", "deploy-site", "a" * 64, "a-b-c"])
def test_a_skills_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a--b", "a" * 65, "a_b", "a/b", "ä"])
def test_what_is_no_skills_name(name: str) -> None:
    with pytest.raises(BadSkill):
        check_name(name)


def main(head: str, body: str = "Steps.") -> str:
    return f"---\n{head}\n---\n{body}\n"


GOOD = "name: commit\ndescription: How we commit."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (main(GOOD), ("commit", "How we commit.")),
        (main(GOOD).replace("\n", "\r\n"), ("commit", "How we commit.")),
        (main("name:  commit \ndescription: 'It: commits'\ntags: [a, b]"), ("commit", "It: commits")),
        (main("name: commit\n\ndescription: >\n  How we\n  commit."), ("commit", "How we commit.")),
        (main("name: commit\ndescription: How to deploy: the site"), ("commit", "How to deploy: the site")),
        (main("name: commit\nx-y_z: 1\ndescription: Uses: colons"), ("commit", "Uses: colons")),
        (main("name: commit # the name\ndescription: x"), ("commit", "x")),
        (main(f"name: {'a' * 64}\ndescription: {'d' * 1_024}"), ("a" * 64, "d" * 1_024)),
    ],
)
def test_front_matter_gives_name_and_description(text: str, found: tuple[str, str]) -> None:
    assert skill_format.name_and_description(text) == found


@each(
    ("text", "says"),
    [
        ("no front matter", "no front matter"),
        ("---\nname: x\n", "no end"),
        (main("description: x"), "no name"),
        (main("name: ''\ndescription: x"), "no name"),
        (main("name: x"), "no description"),
        (main("name: x\ndescription: ' '"), "no description"),
        (main("name: [x]\ndescription: y"), "no name"),
        (main("name: x\nname: y\ndescription: z"), ""),
        (main(GOOD, " "), "says nothing"),
        (main(f"name: {'a' * 65}\ndescription: x"), "65 characters; at most 64"),
        (main(f"name: a\ndescription: {'d' * 1_025}"), "1,025 characters"),
        (main(f"name: a\ndescription: x\nmore: {'d' * 8_000}"), "more than 8,000"),
        (main("name: &a x\ndescription: *a"), "line 2: anchors and aliases"),
        (main("name: !!str x\ndescription: y"), "tags"),
        (main("name: x\ndescription: y\nz: [[[[[1]]]]]"), "too deeply"),
        (
            main("name: x\ndescription: y\nz: [unclosed"),
            "the front matter line 5, column 1 is not valid YAML",
        ),
        (main("- a\n- b"), "must hold fields"),
        (main("name: 'x\n: bad: ["), "not valid YAML"),
    ],
)
def test_front_matter_that_is_not_valid_says_what_is_wrong(text: str, says: str) -> None:
    if says:
        with pytest.raises(BadSkill, match=says):
            skill_format.name_and_description(text)
    else:
        assert skill_format.name_and_description(text)[0] == "y"


def test_four_levels_of_yaml_are_read() -> None:
    head, _ = front_matter.split_front_matter(main(f"{GOOD}\nz: [[[[1]]]]"), "SKILL.md")
    assert front_matter.read_fields(head)["z"] == [[[[1]]]]


def test_the_body_is_what_follows() -> None:
    assert front_matter.split_front_matter("---\na: 1\n---\n\nbody\n\n", "SKILL.md") == ("a: 1", "body")
    assert front_matter.read_fields("a: 1\nb: x y") == {"a": "1", "b": "x y"}
    assert front_matter.read_fields("n: -5") == {"n": "-5"}
