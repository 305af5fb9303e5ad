"""A trial server is gone with whoever started it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import output_of, wait_until
from tests.team.cluster import NO_SERVER
from whet_lab.practice.database import TrialServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SERVER), reason=NO_SERVER)]

_OWNER = """
import sys
from whet_lab.practice.database import TrialServer
server = TrialServer()
print(server.port, server.folder, flush=True)
sys.stdin.read()
"""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_closed_server_is_gone():
    server = TrialServer()
    assert _listens(server.port)
    server.close()
    assert not _listens(server.port)
    assert not server.folder.exists()
    server.close()


def test_a_server_whose_owner_is_killed_is_gone():
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        port, folder = output_of(owner).readline().split()
        assert _listens(int(port))
        owner.kill()
    wait_until(lambda: not Path(folder).exists())
    assert not _listens(int(port))
