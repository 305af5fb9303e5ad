"""The profile for macOS: read back by a small parser, judged as sandbox-exec does: the last rule wins."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch
from whet.sandbox.seatbelt import seatbelt_profile
from whet.sandbox.system_folders import default_policy

_TOKEN = re.compile(r'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+')


def parsed(text: str) -> list[list[object]]:
    """Read the profile's rules; raises where brackets or quotes don't close."""
    stack: list[list[object]] = [[]]
    position = 0
    for match in _TOKEN.finditer(text):
        assert not text[position : match.start()].strip(), text[position : match.start()]
        position = match.end()
        token = match.group()
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(re.sub(r"\\(.)", r"\1", token[1:-1]) if token[0] == '"' else token)
    assert len(stack) == 1 and not text[position:].strip()
    return stack[0]  # type: ignore[return-value]


def allows(rules: list[list[object]], operation: str, path: Path) -> bool:
    verdict = False
    for verb, *rest in rules:
        operations = [text for text in rest if isinstance(text, str)]
        filters = [one for one in rest if isinstance(one, list)]
        if not any(one == "default" or operation.startswith(one.rstrip("*")) for one in operations):
            continue
        if not filters or any(_matches(one, path) for one in filters):
            verdict = verb == "allow"
    return verdict


def _matches(one: list[object], path: Path) -> bool:
    kind, value = one[0], str(one[1]) if len(one) > 1 else ""
    return path == Path(value) if kind == "literal" else kind == "subpath" and path.is_relative_to(value)


def profile(workspace: Path, policy: SandboxPolicy) -> list[list[object]]:
    with closing(Scratch()) as scratch:
        return parsed(seatbelt_profile(policy, scratch))


def test_the_profile_says_what_the_policy_says(tmp_path: Path) -> None:
    workspace = tmp_path / 'w"s\\ (1)'
    workspace.mkdir()
    policy = default_policy(workspace, workspace / "whet", {"HOME": str(tmp_path), "PATH": "/usr/bin"})
    rules = profile(workspace, policy)
    assert rules[1] == ["deny", "default"]
    assert allows(rules, "file-write-data", workspace / "src/a")
    assert allows(rules, "file-read-data", Path("/usr/bin/env"))
    for name in (".git/hooks/x", ".git/config", ".vscode/tasks.json"):
        assert not allows(rules, "file-write-create", workspace / name)
        assert allows(rules, "file-read-data", workspace / name)
    assert not allows(rules, "file-read-data", workspace / "whet/state.db")
    assert not allows(rules, "file-read-data", tmp_path / ".ssh/id_rsa")
    assert not allows(rules, "file-write-data", Path("/etc/hosts"))
    assert not allows(rules, "network-outbound", Path("/"))
