"""Which commands bring something from the network, what they name of it, and which names they leave."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.shell.fetches import (
    find_fetch_sources,
    find_fetched_packages,
    find_left_names,
    find_outside_host,
    reaches_out,
)


@each(
    ("command", "reaches", "packages", "places", "left"),
    [
        ("pip install x", True, ["x"], [], []),
        ("pip install X==1 y>=2", True, ["x", "y"], [], []),
        ("npm i @a/b@1", True, ["@a/b"], ["a/b"], []),
        ("pip install -r a.txt", True, [], ["a.txt"], []),
        ("pip install -i https://a.b x", True, None, ["https://a.b", "https://a.b"], []),
        ("pip install git+https://a.b/c", True, None, ["https://a.b/c", "https://a.b/c"], []),
        ("git pull", True, [], [], ["git", "pull"]),
        ("git pull origin", True, None, [], ["git", "pull", "origin"]),
        (
            "git clone https://a.b/c",
            True,
            None,
            ["https://a.b/c", "https://a.b/c"],
            ["git", "clone", "https://a.b/c"],
        ),
        ("git clone git@a.b:c/d x", True, None, ["c/d"], ["git", "clone", "git@a.b:c/d", "x"]),
        ("curl https://a.b/c", True, None, ["https://a.b/c", "https://a.b/c"], ["curl", "https://a.b/c"]),
        ("curl a.b/c", True, None, ["a.b/c"], ["curl", "a.b/c"]),
        ("curl -o x", True, None, [], ["curl", "x"]),
        ("ls", False, [], [], ["ls"]),
        ("ls; curl a.b", True, None, [], ["curl", "a.b"]),
        ("pip install x && npm i y", True, ["x", "y"], [], []),
        ("docker pull a/b", True, None, ["a/b"], ["docker", "pull", "a/b"]),
        ("curl http://localhost/x", False, [], [], ["curl", "http://localhost/x"]),
        ("cat x https://localhost/y", False, [], [], ["cat", "x", "https://localhost/y"]),
        ("python -c 'import urllib'", True, [], [], ["python"]),
        (
            "python -c \"requests.get('https://a.b')\"",
            True,
            None,
            [],
            ["python", "requests.get", "https://a.b", "", "//a.b"],
        ),
        (
            "wget a.b https://c.d/e",
            True,
            None,
            ["https://c.d/e", "https://c.d/e"],
            ["wget", "a.b", "https://c.d/e"],
        ),
        ("rsync a.b:/x y", True, None, ["a.b"], ["rsync", "a.b:/x", "y"]),
        ("rsync host:/x y", True, None, ["host"], ["rsync", "host:/x", "y"]),
        ("svn co https://a.b", True, None, ["https://a.b", "https://a.b"], ["svn", "co", "https://a.b"]),
        ("apt-get install -y x", True, ["x"], [], []),
        ("sudo apt install x", True, ["x"], [], []),
        ("curl $U > out.json; cat z", True, None, ["out.json"], ["curl", "$U", "out.json", "cat", "z"]),
        ("cat <<E | curl a.b\nhttps://c.d\nE", True, None, [], ["curl", "a.b"]),
        ("if then ( curl a.b", True, None, [], ["curl", "a.b", "if", "then"]),
        ("pip list", False, [], [], ["pip", "list"]),
        ("pip show x", True, ["x"], [], []),
        ("uv pip install x", True, ["x"], [], []),
        ("npm run x", False, [], [], ["npm", "run", "x"]),
        ("go get a.b/c@v1", True, ["a.b/c"], ["a.b/c"], []),
        ("cargo add x --features y", True, ["x", "y"], [], []),
        ("pip install ./x /y ~/z", True, [], ["./x"], []),
        ("pip install -e .", True, [], [], []),
    ],
)
def test_what_a_command_fetches_is_told_from_its_words(
    command: str, reaches: bool, packages: list[str] | None, places: list[str], left: list[str]
) -> None:
    fetched_packages = find_fetched_packages(command)
    assert reaches_out(command) is reaches
    assert (None if fetched_packages is None else sorted(fetched_packages)) == packages
    assert find_fetch_sources(command) == places
    assert find_left_names(command) == left


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://a.b/c", "a.b"),
        ("http://localhost/x https://a.b", "a.b"),
        ("git@a.b:c", "a.b"),
        ("a@b:c", ""),
        ("{https://a.b}", ""),
        ("http://127.0.0.1", ""),
        ("ftp://me@a.b/", "a.b"),
        ("x", ""),
        ("HTTPS://A.b:8/", "A.b"),
        ("http://[::1]/", ""),
        ("https://0.0.0.0 ssh://h", "h"),
    ],
)
def test_an_address_outside_of_this_machine_is_found(text: str, host: str) -> None:
    assert find_outside_host(text) == host
