"""Variables that are set for a command or for later ones: which make it another command."""

from __future__ import annotations

from tests.approval.test_faults import judge
from tests.support import each


@each(
    ("command", "level", "pieces"),
    [
        ("x=1 ls", "normal", ["ls", "x=1 ls"]),
        ("FOO=1 ls", "normal", ["ls", "FOO=1 ls"]),
        ("LANG=C ls", "safe", ["ls"]),
        ("PAGER=evil man ls", "dangerous", ["PAGER=evil", "man ls"]),
        ("PAGER='less -R' man ls", "normal", ["PAGER='less -R'", "man ls"]),
        ("PAGER=less man ls", "normal", ["PAGER=less", "man ls"]),
        ("PAGER=wc man ls", "normal", ["PAGER=wc", "man ls"]),
        ("PAGER=$X man ls", "dangerous", ["PAGER=$X", "man ls"]),
        ("PAGER=./e man ls", "dangerous", ["PAGER=./e", "man ls"]),
        ("PAGER= man ls", "normal", ["PAGER=''", "man ls"]),
        (
            "NODE_OPTIONS=--max-old-space-size=4 node a",
            "normal",
            ["NODE_OPTIONS=--max-old-space-size=4", "node a"],
        ),
        ("NODE_OPTIONS=-r=x node a", "dangerous", ["NODE_OPTIONS=-r=x", "node a"]),
        ("PYTHONPATH=/x pytest", "normal", ["PYTHONPATH=/x", "pytest"]),
        ("PYTHONPATH=$X pytest", "normal", ["PYTHONPATH=$X", "pytest"]),
        ("PYTHONPATH=src pytest", "normal", ["pytest"]),
        ("PATH=/x make", "normal", ["PATH=/x", "make"]),
        ("GOFLAGS=x go build", "dangerous", ["GOFLAGS=x", "go build"]),
        ("HTTP_PROXY=x; ls", "normal", ["HTTP_PROXY=x", "ls"]),
        ("x=1; ls", "safe", ["ls"]),
        ("export FOO=1; ls", "normal", ["export FOO=1", "ls"]),
        ("LD_PRELOAD=x ls", "dangerous", ["LD_PRELOAD=x", "ls"]),
    ],
)
def test_what_a_variable_steers_is_a_piece_of_its_own(command: str, level: str, pieces: list[str]) -> None:
    risk = judge(command)
    assert (risk.level, [piece.text for piece in risk.commands]) == (level, pieces)
