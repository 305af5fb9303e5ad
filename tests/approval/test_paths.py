"""Where a path lies, and which addresses are this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import each
from whet.approval.addresses import find_forbidden_address, is_metadata, is_this_machine
from whet.approval.paths import absolute_path, is_plain_device, is_vital, resolve_links, within, zone_of
from whet.approval.risk import RiskScope
from whet.approval.secrets import is_secret

PLACE = RiskScope("/code/proj", "/home/u", "/home/u/.whet")


@each(
    ("path", "zone"),
    [
        ("a", "workspace"),
        ("", "workspace"),
        ("/code/proj", "workspace"),
        ("/code/project", "outside"),
        ("..", "root"),
        ("sub/../../x", "outside"),
        ("/tmp/x", "temp"),
        ("/var/tmp", "temp"),
        ("/tmpx/y", "outside"),
        (".git", "hooks"),
        ("sub/.git/config", "hooks"),
        (".github/x", "workspace"),
        (".husky/pre-commit", "hooks"),
        ("/home/u/.whet", "whet"),
        ("/home/u/.whetx", "outside"),
        ("/home/u/.bashrc", "startup"),
        ("/home/u/.bashrc/x", "outside"),
        ("/home/u/.ssh/config", "startup"),
        ("/home/u/.config/git/config", "startup"),
        ("/home/u/.config/x", "outside"),
        ("/home/u/x/.bashrc", "outside"),
        ("/home/u", "root"),
        ("/home", "root"),
        ("/", "root"),
        ("/x", "root"),
        ("/etc/x", "system"),
        ("/etc", "root"),
        ("/usr/lib/x", "system"),
        ("/data/x", "outside"),
        ("/dev/null", "null"),
        ("/dev/fd/1", "null"),
        ("/dev/sda1", "disk"),
        ("/dev/nvme0n1", "disk"),
        ("/dev/tcp/a/1", "network"),
        ("/dev/x", "system"),
        ("a\0b", "unknown"),
    ],
)
def test_a_path_lies_in_one_zone(path: str, zone: str) -> None:
    assert zone_of(path, "/code/proj", PLACE) == zone


def test_where_the_folder_is_not_known_only_an_absolute_path_lies_somewhere() -> None:
    assert zone_of("a", None, PLACE) == "unknown"
    assert zone_of("/tmp/a", None, PLACE) == "temp"
    assert absolute_path("a", None) is None
    assert absolute_path("//a/./b/../c", None) == "/a/c" and absolute_path("../x", "/a") == "/x"


def test_a_home_that_is_the_workspace_or_holds_it_keeps_its_start_up_files() -> None:
    home = RiskScope("/home/u", "/home/u", "/home/u/.whet")
    assert zone_of("/home/u/.bashrc", None, home) == "startup"
    assert zone_of("/home/u/x", None, home) == "workspace"
    assert zone_of("/home/u/x/.ssh", None, home) == "startup"
    assert zone_of("/home/u/.git/x", None, home) == "hooks"
    chosen = RiskScope("/home/u/.config/fish", "/home/u", "/home/u/.whet")
    assert zone_of("/home/u/.config/fish/x", None, chosen) == "workspace"
    assert zone_of("/home/u/.config/git/x", None, chosen) == "startup"
    within_tmp = RiskScope("/code", "/tmp/u", "/tmp/u/.whet")
    assert zone_of("/tmp/u/.bashrc", None, within_tmp) == "startup"
    below = RiskScope("/code", "/code/u", "/code/u/.whet")
    assert zone_of("/code/u/.bashrc", None, below) == "startup"


def test_a_link_counts_as_where_it_leads(tmp_path: Path) -> None:
    scope = RiskScope(str(tmp_path), "/home/u", "/home/u/.whet", temp=())
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").symlink_to("sub")
    (tmp_path / "far").symlink_to("/data/x/y")
    assert zone_of("out/x", str(tmp_path), scope) == "system"
    assert zone_of("in/x", str(tmp_path), scope) == "workspace"
    assert zone_of("far/../x", str(tmp_path), scope) == "outside", "`..` is the target's parent"
    assert resolve_links("/a\0b") == ""


def test_what_the_machine_or_the_person_cannot_lose_is_vital() -> None:
    vital = ("/", "/home", "/home/u", "/etc", "/data")
    assert all(is_vital(path, PLACE) for path in vital)
    assert not any(is_vital(path, PLACE) for path in ("/home/u/x", "/home/v", "/tmp", "/data/x"))
    assert not is_vital("/proj", RiskScope("/proj", "/home/u", "/home/u/.whet"))
    assert within("/a", "/a") and within("/a/b", "/a/") and within("/a", "/")
    assert not within("/ab", "/a") and not within("/", "/a")
    assert is_plain_device("/dev/tty") and not is_plain_device("/dev/sda")
    assert not is_plain_device("/dev/nullx")


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "127.0.0.1", "127.1", "0x7f000001", "0.0.0.0", "::", "::1", "lvh.me"]
)
def test_this_machine_is_known_by_every_name(host: str) -> None:
    assert is_this_machine(host) and not is_metadata(host)


@pytest.mark.parametrize(
    "host", ["64:ff9b::7f00:1", "::ffff:127.0.0.1", "2002:7f00:1::", "::127.0.0.1", "127.0.0.1.nip.io"]
)
def test_an_address_within_another_counts(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "host", ["64:ff9b::1", "2001:db8::7f00:1", "8.8.8.8", "localhost.a.b", "a.b", "1x", "", "fe80::1%eth0"]
)
def test_other_machines_are_not_this_one(host: str) -> None:
    assert not is_this_machine(host)


def test_what_is_reached_is_named() -> None:
    scope = RiskScope("/code/proj", "/home/u", "/home/u/.whet", own_ports=(6000,))
    assert (
        find_forbidden_address(["a", "http://[::1]:6000/x"], scope)
        == "reaches a port that Whet's own servers use: ::1:6000"
    )
    assert "169.254.169.254" in find_forbidden_address(["x://me@169.254.169.254./"], scope)
    for harmless in (
        "http://localhost/",
        "localhost:6001",
        "a.b:6000",
        "6000",
        "x" * 10_000 + " 169.254.169.254",
    ):
        assert find_forbidden_address([harmless], scope) == "", harmless
    assert find_forbidden_address(["localhost:6000"], PLACE) == ""
    assert is_metadata("fe80::1%eth0") and is_metadata("a9fea9fe.nip.io")
    assert is_metadata("metadata.google.internal")


@pytest.mark.parametrize(
    ("workspace", "path", "zone"),
    [
        ("/home/u/.whet/people/ben/work", "notes.md", "workspace"),
        ("/home/u/.whet/people/ben/work", "/home/u/.whet/people/ben/work/a/b", "workspace"),
        ("/home/u/.whet/people/ben/work", "..", "whet"),
        ("/home/u/.whet/people/ben/work", "../MEMORY.md", "whet"),
        ("/home/u/.whet/people/ben/work", "../../eve/work/x", "whet"),
        ("/home/u/.whet/people/ben/work", ".git/config", "hooks"),
        ("/home/u/.whet/people/ben", "notes.md", "whet"),
        ("/home/u/.whet/people/ben/work/sub", "notes.md", "whet"),
        ("/code/proj", "/home/u/.whet/people/ben/work/notes.md", "whet"),
        ("/home/u/.whet", "people/ben/work/notes.md", "whet"),
    ],
)
def test_a_person_s_folder_in_the_home_is_a_workspace_for_them_alone(
    workspace: str, path: str, zone: str
) -> None:
    assert zone_of(path, workspace, RiskScope(workspace, "/home/u", "/home/u/.whet")) == zone
    full = absolute_path(path, workspace)
    counts_as_secret = is_secret(str(full), RiskScope(workspace, "/home/u", "/home/u/.whet"))
    assert counts_as_secret is (zone == "whet")
