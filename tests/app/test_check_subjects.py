"""A check's data files are the goal's work only if nothing is compared with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.goals.roles import find_subjects, find_unwanted

_FILES = {
    "state.txt": "no\n",
    "other.json": "{}\n",
    "main.py": "print(1)\n",
    "lib.sh": "ready() { grep -q ready state.txt; }\n",
    "check": "grep -q ready state.txt\n",
    "check.sh": "set -e  # see other.json\ngrep -q ready state.txt 2>/dev/null && test -s other.json\n",
    "check.py": "import json\nassert json.load(open('other.json'))['ready']\n",
    "start.sh": "exec sh ./check.sh\n",
    "runs.py": "import subprocess\nassert subprocess.check_output('./a') == open('state.txt', 'rb').read()\n",
}


@pytest.mark.parametrize(
    ("command", "subjects"),
    [
        ("grep -q ready state.txt", "state.txt"),
        ("cat ./state.txt | grep -q ready", "state.txt"),
        ('test "$(cat state.txt)" = ready', "state.txt"),
        ("sh check", "state.txt"),
        ("sh check.sh", "other.json state.txt"),
        ("sh start.sh", "other.json state.txt"),
        ("python3 check.py", "other.json"),
        ("diff state.txt other.json", ""),
        ("diff out.txt state.txt", ""),
        ("go run . | diff - state.txt", ""),
        ("diff <(go run .) state.txt", ""),
        ('test "$(go run .)" = "$(cat state.txt)"', ""),
        ('test "$(cat state.txt)" = "$WANT"', ""),
        ("go run . > /tmp/out; cmp /tmp/out state.txt", ""),
        ("python3 main.py; grep -q ready state.txt", ""),
        (". ./lib.sh; ready; test -s other.json", ""),
        ("sh check.sh && sh lib.sh", ""),
        ("python3 runs.py", ""),
        ("pytest -q state.txt", ""),
    ],
)
def test_a_file_that_may_be_compared_with_something_is_no_subject(
    tmp_path: Path, command: str, subjects: str
) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    assert find_subjects(command, tmp_path) == set(subjects.split())


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("test ! -e state.txt", "state.txt"),
        ("! [ -f ./state.txt ] && test ! -s other.json", "state.txt other.json"),
        ("if [ -e state.txt ]; then echo left; exit 1; fi", "state.txt"),
        ("sh gone.sh", "state.txt"),
        ("python3 gone.py", "state.txt"),
        ("test ! -e state.txt || grep -q ready state.txt", ""),
        ("if [ ! -e state.txt ]; then exit 0; fi; grep -q ready state.txt", ""),
        ("! grep -q no state.txt", ""),
        ("python3 check.py", ""),
        ("test ! -e state.txt; pytest -q", ""),
    ],
)
def test_a_check_wants_a_file_gone_only_if_it_fails_with_it(
    tmp_path: Path, command: str, unwanted: str
) -> None:
    scripts = {
        "gone.sh": "set -e\n[ ! -e state.txt ]\n",
        "gone.py": "import os\nassert not os.path.exists('state.txt')\n",
    }
    for name, text in {**_FILES, **scripts}.items():
        (tmp_path / name).write_text(text)
    assert find_unwanted(command, tmp_path) == set(unwanted.split())
