"""Which commands bring text from the network, and which files they leave."""

from __future__ import annotations

import pytest

from whet.memory import network

FETCHES = [
    "curl https://x.example/a",
    "cd /tmp && wget x.example",
    "sudo env A=1 timeout 5 curl -s x.example",
    "/usr/bin/curl x.example",
    "gh issue view 3",
    "git clone git@x.example:a/b",
    "git -C sub pull",
    "git fetch",
    "pip install nox",
    "uv add nox",
    "npm exec tool",
    "rsync -a host:/x .",
    "docker pull x",
    'python -c "import urllib.request"',
    "cat < /dev/tcp/1.2.3.4/80",
    "echo hi; open http://x.example",
    "while true; do wget x; done",
    "echo $(curl x.example)",
    "true | nc host 80",
    "curl http://localhost.evil.example/",
    "cat 'a\nb' && curl x",
]
LOCAL = [
    "ls -l",
    "git log --oneline",
    "git status",
    "make check",
    "curl http://localhost:8080/health",
    "curl -s http://127.0.0.1/x",
    "curl http://[::1]:80/",
    "curl http://user@localhost/",
    "echo https://x.example",
    "echo 'use curl'",
    "grep 'git clone' notes",
    "printf 'pip install nox'",
    "python build.py",
]


@pytest.mark.parametrize("command", FETCHES)
def test_what_fetches_counts_as_from_the_network(command: str) -> None:
    assert network.is_network(command)


@pytest.mark.parametrize("command", LOCAL)
def test_what_stays_here_does_not(command: str) -> None:
    assert not network.is_network(command)


@pytest.mark.parametrize("command", ["echo `curl https://x.example`", "echo $(cat https://x.example)"])
def test_an_address_that_a_command_in_an_echo_fetches_is_no_mere_word(command: str) -> None:
    assert network.is_network(command)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("curl -o page.html x.example", ["page.html"]),
        ("curl -sSo page.html x.example", ["page.html"]),
        ("curl -O https://x.example/a.tgz?v=2", ["a.tgz"]),
        ("curl --remote-name https://x.example/a.tgz", ["a.tgz"]),
        ("curl https://x.example/a.tgz", []),
        ("wget https://x.example/d/a.tgz", ["a.tgz"]),
        ("wget --output-document=b.tgz https://x.example/a", ["b.tgz", "a"]),
        ("wget --output=b.tgz x", ["b.tgz"]),
        ("tar -C out -xf a.tgz", ["out"]),
        ("gh x --directory=out", ["out"]),
        ("git clone https://x.example/a/b.git", ["b"]),
        ("git clone https://x.example/a/b.git there", ["there"]),
        ("git clone", []),
        ("cp a.txt b.txt", ["b.txt"]),
        ("sudo mv -f a b c", ["c"]),
        ("x | tee -a one two", ["one", "two"]),
        ("x > 'out.txt' 2>/dev/null", ["out.txt"]),
        ("x 2>>err.log", ["err.log"]),
        ("x >&2", []),
        ("ls", []),
    ],
)
def test_the_files_that_a_command_writes(command: str, files: list[str]) -> None:
    assert network.outputs(command) == files


@pytest.mark.parametrize(
    ("text", "path", "there"),
    [
        ("cat page.html", "page.html", True),
        ("cat out/page.html", "dl/page.html", True),
        ("cat mypage.html", "page.html", False),
        ("cat page.html5", "page.html", False),
        ("cat page.html-old", "page.html", False),
        ("ls repo/", "x/repo/", True),
        ("ls", "/", False),
    ],
)
def test_a_path_is_named_by_its_last_part(text: str, path: str, there: bool) -> None:
    assert network.mentions(text, path) is there


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ("make check # not pytest", "make check"),
        ("echo use nox && make check", " make check"),
        ("cat > f <<'E'\nuse nox\nE\nmake check", "cat > f  \nmake check"),
        ("echo nothing else", ""),
    ],
)
def test_what_a_command_only_says_it_does_not_do(command: str, does: str) -> None:
    assert network.meant(command) == does


@pytest.mark.parametrize(
    ("command", "repeats"),
    [
        ("echo use nox", True),
        ("printf x | base64 -d | tee a", True),
        ("echo x | make check", False),
        ("echo a; make check", False),
        ("grep x <<< 'use nox'", True),
        ("python3 -c 'print(__import__(1).b64decode(\"eA==\"))'", True),
        ("python3 -c 'print(open(\"f\").read())'", False),
        ("make check", False),
        ("", False),
        ("echo x | /usr/bin/rev", True),
        ("'unbalanced echo", False),
    ],
)
def test_what_only_gives_back_the_commands_own_words_shows_nothing(command: str, repeats: bool) -> None:
    assert network.only_repeats(command) is repeats
