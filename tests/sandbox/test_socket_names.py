"""Which names the kernel lists for sockets, and that those of the workspace are covered."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from whet.sandbox.sockets import find_foreign_sockets, parse_socket_names
from whet.sandbox.system_folders import default_policy

LIST = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000003 00000000 00000000 0001 03 23168194
0000000000000000: 00000002 00000000 00010000 0001 01    17 /run/early.sock
0000000000000000: 00000002 00000000 00010000 0001 01  1234 @abstract
0000000000000000: 00000002 00000000 00010000 0001 01 23156932 /run/two  words
0000000000000000: 00000002 00000000 00010000 0001 01 23156933 relative.sock
0000000000000000: 00000003 00000000 00000000 0001 03 23156934 relative.sock
0000000000000000: 00000003 00000000 00000000 0001 03   999
"""


def test_a_socket_without_a_name_has_none_and_a_padded_inode_is_no_part_of_one() -> None:
    assert parse_socket_names(LIST) == ["/run/early.sock", "@abstract", "/run/two  words", "relative.sock"]


def test_sockets_of_the_workspace_are_covered_by_absolute_and_relative_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "work"
    (workspace / "sub").mkdir(parents=True)
    policy = default_policy(workspace, tmp_path / "home", os.environ)
    assert find_foreign_sockets(policy) == []
    monkeypatch.chdir(workspace / "sub")
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.bind(str(workspace / "a b"))
        second.bind("relative")
        assert {*find_foreign_sockets(policy)} == {workspace / "a b", workspace / "sub" / "relative"}
