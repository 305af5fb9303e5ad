"""What the pages on confirmations tell a reader to type is typed, in a fresh home, beside a service."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confirm.process import Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("confirm*.md"))
# What goes on until it is stopped (`serve` is tried below), what changes or needs this machine.
ELSEWHERE = re.compile(
    r"whet confirm (?:watch|serve|hook|mcp|try-channels|gateway)\b"
    r"|^sudo |^docker |^pip |install(?!.*--dry-run)"
)
ASK = {"action": "deploy_shop", "description": "Deploy 1.4.2", "details": {"env": "production"}}


def typed(page: Path) -> Iterator[str]:
    """Each command of a page: an indented line, with those that go on with it."""
    for block in re.findall(r"(?:^ {4}.*\n)+", page.read_text("utf-8"), re.M):
        lines = textwrap.dedent(block).replace("\\\n", " ").splitlines()
        for number, line in enumerate(lines):
            if re.match(r"(?:sudo |docker |pip |whet confirm|whet doctor|curl)", line):
                more = [one for one in lines[number + 1 :] if line.count("'") % 2 and one.startswith(" ")]
                yield "\n".join([line, *more])


COMMANDS = [(page.name, line) for page in PAGES for line in typed(page)]
SERVING = sorted({line for _, line in COMMANDS if line.startswith("whet confirm serve")})


def blocks_of(page: str, begins: str) -> str:
    text = (ROOT / "docs" / page).read_text("utf-8")
    match = re.search(rf"^ {{4}}{re.escape(begins)}.*?(?=^\S|^ {{4}}whet)", text, re.M | re.S)
    assert match is not None, begins
    return textwrap.dedent(match[0])


class Reader:
    """A shell in a fresh home, with a service beside it and what the page tells to set."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.served = served
        self._folder = folder
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "whet").write_text(f'#!/bin/sh\nexec {sys.executable} -m whet "$@"\n')
        (bin_folder / "whet").chmod(0o755)
        (folder / "policy.toml").write_text(blocks_of("confirm-policy.md", "[groups]"))
        url = f"http://127.0.0.1:{served.port}"
        self._environ = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "WHET_HOME": str(served.home),
            "WHET_CONFIRM_URL": url,
            "API": url,
            "AGENT": served.token("submit"),
            "OWNER": served.token("approve"),
        }
        self.types("whet confirm token create --role approve --name bob")

    def types(self, line: str) -> tuple[int, str]:
        """Run a line; the exit code and what was printed."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    def asks(self) -> tuple[str, str]:
        """Submit; the id and the digest."""
        status, request = self.served.call("POST", "/confirm", ASK, role="submit")
        assert status == 202, request
        self._environ |= {"ID": request["id"], "DIGEST": request["digest"]}
        return request["id"], request["digest"]

    def ready_for(self, line: str) -> str:
        """Bring about what a line is about, and give it with the numbers of this home."""
        words = line.split()
        request_id, digest = self.asks()
        if "/consume" in line or "/report" in line:
            assert self.served.call("POST", f"/confirm/{request_id}/approve", role="approve")[0] == 200
        if "/report" in line:
            body = {"digest": digest}
            assert self.served.call("POST", f"/confirm/{request_id}/consume", body, role="submit")[0] == 200
        if words[1:3] == ["confirm", "token"] and "ID" in words:
            _, listing = self.types(
                "whet confirm token create --role audit --name eve; whet confirm token list"
            )
            request_id = re.findall(r"^(\w{12})\b.*\beve\b", listing, re.M)[-1]
        if "away --end" in line:
            self.types("whet confirm away --stand-in bob --until 2w")
            (listed,) = self.served.call("GET", "/delegations", role="approve")[1]["delegations"]
            return line.replace("--end 1", f"--end {listed['id']}")
        if "disallow" in line:
            self.types("whet confirm policy allow restart_service --principal agent --for 2h")
        if words[1:3] == ["confirm", "approve"] and "--digest" not in line.partition("#")[0]:
            line = f"{line.partition('#')[0]} --digest {digest}"  # nobody is at a terminal to be asked
        if words[1:3] == ["confirm", "setup"]:
            line = f"{line.partition('#')[0]} --yes"  # nor to answer the four questions
        return re.sub(r"\bID\b(?!=)(?<!\$ID)", request_id, line) if "$ID" not in line else line


@pytest.mark.parametrize("page", sorted({page for page, line in COMMANDS if not ELSEWHERE.search(line)}))
def test_what_a_page_tells_to_type_works_beside_a_service(page, tmp_path):
    wrong: list[tuple[str, str]] = []
    with Served(tmp_path, "--rate-limit", "1000") as served:
        reader = Reader(tmp_path, served)
        for name, line in COMMANDS:
            is_missing = line.startswith("curl") and not shutil.which("curl")
            if name != page or ELSEWHERE.search(line) or is_missing:
                continue
            code, text = reader.types(reader.ready_for(line))
            if code or '"error"' in text:
                wrong.append((line, text))
    assert not wrong


@pytest.mark.parametrize("line", SERVING)
def test_a_page_tells_to_start_it_so(line, tmp_path):
    if "--oidc" in line:
        pytest.importorskip("jwt")
    (tmp_path / "policy.toml").write_text(blocks_of("confirm-policy.md", "[groups]"))
    (tmp_path / "oidc.toml").write_text(blocks_of("confirm-people.md", "issuer"))
    options = line.removeprefix("whet confirm serve")
    for named in ("policy.toml", "~/.whet/confirm/oidc.toml", "/mnt/other/checkpoints.jsonl"):
        options = options.replace(named, str(tmp_path / Path(named).name))
    with Served(tmp_path, *shlex.split(options)) as served:
        assert served.call("GET", "/health")[0] == 200
        assert served.terminate() == 0


def test_the_pages_have_commands():
    assert len(COMMANDS) >= 40
    assert len(SERVING) >= 5
