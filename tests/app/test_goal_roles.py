"""Which changed files are the program that a goal is about, and which ones judge it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import each
from whet.goals.base import Difference
from whet.goals.roles import CheckedTree, judging_files

_TEST = {"tests/test_app.py": "import app, json\n"}


@each(
    ("was", "now", "judging"),
    [
        # what a test imports, and what that imports in turn
        ({"app.py": "1"}, {"app.py": "2"}, set()),
        ({}, {"app.py": "import parts\n", "parts.py": "import more\n", "more.py": ""}, set()),
        ({}, {"app.py": "import parts\n", "parts.py": "", "other.py": ""}, {"other.py"}),
        ({}, {"lib/app.py": "", "lib/other.py": ""}, {"lib/other.py"}),
        # what runs with every program, or is hidden, whoever imports it
        ({}, {"app.py": "import sitecustomize\n", "sitecustomize.py": ""}, {"sitecustomize.py"}),
        ({}, {".tools/app.py": ""}, {".tools/app.py"}),
        ({}, {"conftest.py": ""}, {"conftest.py"}),
        ({}, {"tests/test_app.py": "import app\nassert True\n"}, {"tests/test_app.py"}),
        # a new module that hides one of Python's own; one that was there before hides nothing new
        ({}, {"src/json.py": ""}, {"src/json.py"}),
        ({"src/json/__init__.py": ""}, {"src/json/more.py": ""}, set()),
    ],
)
def test_files_that_the_checks_do_not_refer_to_judge(
    was: Mapping[str, str], now: Mapping[str, str], judging: set[str]
) -> None:
    before = {**_TEST, **was}
    after = {**before, **now}
    changed: dict[str, Difference] = {name: "changed" if name in before else "new" for name in now}
    texts = (lambda name: before.get(name, ""), lambda name: after.get(name, ""))
    tree = CheckedTree(frozenset(before), *texts, "python3 -m pytest", "Fix it.", roots=("src/", ""))
    assert judging_files(tree, changed).keys() == judging
