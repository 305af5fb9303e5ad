"""What a yes to a shell command covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.approval.test_faults import judge
from tests.approval.test_gate import Bench, Someone
from tests.support import each


@each(
    ("command", "grants"),
    [
        ("python script.py x", ["python script.py *"]),
        ("python3.11 -m pytest -q", ["python3.11 -m pytest *"]),
        ("python -m", ["python -m"]),
        ("python -m $X", ["python -m $X"]),
        ("python -c x", ["python -c x"]),
        ("python ./a b", ["python ./a *"]),
        ("python $X", ["python $X"]),
        ("python -x", ["python -x"]),
        ("python 'a b'", ["python 'a b'"]),
        ("python", ["python"]),
        ("node a.js x", ["node a.js *"]),
        ("node -m x", ["node -m x"]),
        ("bash a.sh x", ["bash a.sh *"]),
        ("perl -m x", ["perl -m x"]),
        ("./x a", ["./x *"]),
        ("make", ["make"]),
        ("make 'a*' b", ["make 'a\\*' b"]),
        ("git commit -m x", ["git commit *"]),
        ("git $X", ["git $X"]),
        ("git --no-pager commit", ["git --no-pager commit"]),
        ("git 'A b'", ["git 'A b'"]),
        ("npm run build x", ["npm run build *"]),
        ("npm run", ["npm run"]),
        ("npm run $X", ["npm run $X"]),
        ("npm run --silent x", ["npm run --silent x"]),
        ("npm exec x y", ["x *", "npm exec x *"]),
        ("npm x y z", ["y *", "npm x y *"]),
        ("npm i", ["npm i *"]),
        ("ls", [""]),
        ("cat a | wc", ["", ""]),
        ("rm -r x", ["rm -r x"]),
        ("curl a.b", ["curl a.b"]),
        ("wget a.b x", ["wget a.b x"]),
        ("sed -i s/a/b/ x", ["sed -i s/a/b/ x"]),
        ("/usr/bin/make x", ["make x"]),
        ("/opt/bin/make x", ["/opt/bin/make *"]),
        ("tee 'a?b'", ["tee 'a\\?b'"]),
        ("touch 'a*b' c", ["touch *"]),
    ],
)
def test_a_yes_covers_the_program_and_its_verb_or_the_very_text(command: str, grants: list[str]) -> None:
    assert [piece.grant for piece in judge(command).commands] == grants


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        ("sed -i s/1/2/ 'x*.txt'", 'sed -i s/1/2/ "x*.txt"', "sed -i s/1/2/ x*.txt"),
        ("sed -i s/1/2/ x*.txt", "sed -i 's/1/2/' x*.txt", "sed -i s/1/2/ 'x*.txt'"),
        ("sed -i s/1/2/ '$a'", r"sed -i s/1/2/ \$a", "sed -i s/1/2/ $a"),
        ("sed -i s/1/2/ '~v'", r"sed -i s/1/2/ \~v", "sed -i s/1/2/ ~v"),
        ("sed -i s/1/2/ '{p,q}'", r"sed -i s/1/2/ \{p,q\}", "sed -i s/1/2/ {p,q}"),
        ("sed -i s/1/2/ x{1,2}*", "sed -i s/1/2/ x1* x2*", "sed -i s/1/2/ 'x1*' x2*"),
    ],
)
def test_a_yes_to_exactly_this_text_holds_for_what_the_shell_makes_of_it(
    tmp_path: Path, first: str, same: str, other: str
) -> None:
    bench = Bench(tmp_path, Someone("session"), mode="ask")
    assert bench.sh(first).decided_by == "person"
    assert bench.sh(same).decided_by == "rule"
    assert bench.sh(other).decided_by == "nobody"
