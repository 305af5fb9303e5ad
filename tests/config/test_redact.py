from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.planted import planted
from tests.support import each
from whet.config.redact import holds_secret, looks_random, mask_secrets, redact
from whet.log import MASK

ROOT = Path(__file__).parents[2]


def test_no_planted_secret_survives() -> None:
    rows = planted()
    assert len(rows) >= 80
    assert len({kind for kind, _, _ in rows}) >= 12
    left = [(kind, text) for kind, text, secret in rows if secret in redact(text)]
    assert not left
    # A piece of it would be enough for whoever knows the rest.
    pieces = [
        (kind, text) for kind, text, secret in rows if len(secret) > 15 and secret[4:-4] in redact(text)
    ]
    assert not pieces


@pytest.mark.slow
def test_no_planted_secret_survives_with_other_values() -> None:
    for seed in range(20):
        left = [(kind, text) for kind, text, secret in planted(seed) if secret in redact(text)]
        assert not left, seed


_VALUE = "v4luE-0ne-two"
_LINES = (
    f"{{}} = '{_VALUE}'",
    f'"{{}}": "{_VALUE}"',
    f"--{{}} {_VALUE}",
    f"{{}}={_VALUE}",
    "?a=1&{}=v4luE0ne",
)
_NAMES = """
api_key apikey secret client-secret token password passwd passphrase pwd pass credentials auth_key
access-key-id account_key private_key signing-key encryption_key shared_key authorization x-api-key dsn
webhook_url sig code sid DB_AUTH cookie
"""


def test_a_pattern_that_is_not_tried_would_have_matched_nothing() -> None:
    """With a letter beyond ASCII before a text every pattern is tried."""
    texts = [text for _, text, _ in planted()]
    texts += [
        line.format(shape(name)) for line in _LINES for name in _NAMES.split() for shape in (str, str.upper)
    ]
    assert sum(mask_secrets(text) != text for text in texts) > 200
    differing = [text for text in texts if mask_secrets(f"é\n{text}") != f"é\n{mask_secrets(text)}"]
    assert differing == []


@pytest.mark.slow
def test_ordinary_text_stays_as_it_is() -> None:
    files = sorted(ROOT.glob("src/whet/**/*.py"))[::9]
    for pattern in ("docs/*.md", "*.md", "tests/store/*.py"):
        files += ROOT.glob(pattern)
    lines = [line for path in files for line in path.read_text("utf-8").splitlines() if line.strip()]
    assert len(lines) > 10_000
    changed = [line for line in lines if mask_secrets(line) != line]
    assert len(changed) <= len(lines) * 0.002, changed[:40]


@each(
    "text",
    [
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "id 123e4567-e89b-12d3-a456-426614174000 done",
        "def getElementsByClassNameAndIdentifier42(self): ...",
        "wheel-3.11-py3-none-any.manylinux2014_x86_64.whl",
        "/usr/lib/python3.11/site-packages/whet/store/migrations/m001_sessions.py",
        "max_tokens: 4096, total_tokens = list_tokens(rows)",
        "password = getpass.getpass()",
        "token: str = ''",
        "api_key=os.environ['OPENAI_API_KEY']",
        "set OPENAI_API_KEY=... and run `whet doctor`",
        "the secret of good tests is that they fail once",
        "git clone git@example.org:team/project.git",
        "-rw-r--r-- 1 user user 4096 Nov 21 09:00 token.txt",
        "integrity sha512-9AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfGhIjKlMnOpQrSt==",
    ],
)
def test_ordinary_lines(text: str) -> None:
    assert mask_secrets(text) == text


def test_names_of_people_and_homes_go() -> None:
    text = "/home/ada/code/x.py by ada.l@example.org; /Users/ada/x; /root/.ssh; /srv/me/x"
    assert redact(text, home="/srv/me") == "~/code/x.py by [EMAIL]; ~/x; ~/.ssh; ~/x"
    assert redact("/home/ada", home="") == "~"
    assert redact("/srv/meadow", home="/srv/me") == "/srv/meadow"


def test_doing_it_twice_changes_nothing_more() -> None:
    for _, text, _ in planted(3):
        once = redact(text)
        assert redact(once) == once


def test_holds_secret() -> None:
    assert holds_secret("password: hunter2hunter2")
    assert not holds_secret("no such thing")
    assert not looks_random("a" * 40)


@pytest.mark.parametrize("name", ["password", "PASSWORD", "PassWord", "paſſword"])
def test_a_name_counts_in_any_letters(name: str) -> None:
    assert mask_secrets(f"{name}: hunter22x") == f"{name}: {MASK}"


def test_a_plain_text_compiles_few_patterns() -> None:
    code = (
        "import re, platform, shlex, whet.late, whet.log\nbefore = len(re._cache)\n"
        "from whet.config.redact import redact\n"
        "print(redact('look for topic7 in the records'), len(re._cache) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, _, count = done.stdout.rpartition(" ")
    assert text == "look for topic7 in the records"
    assert int(count) <= 2
