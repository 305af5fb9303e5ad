"""Deny rules for files hold for every reader and writer, and the table in the manual says how."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.approval.test_gate import Bench, Kept, Someone
from tests.sandbox.engines import ENGINES, EngineCase
from tests.tools.running import context
from whet.approval.confined import JailGate
from whet.approval.gate import GateParts, PolicyGate
from whet.config.permission_settings import ApprovalSettings
from whet.contract.errors import BadInput, ToolDenied, ToolError
from whet.contract.messages import ToolCall
from whet.contract.protocols import GateCall
from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput, ToolSpec
from whet.lanes import ToolPool
from whet.sandbox import engine
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.path_rules import read_path_rules
from whet.sandbox.policy import Opening
from whet.tools.registry import Registry
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")

_MANUAL = Path(__file__).parents[2] / "docs" / "approval.md"
_RULES = ("read_file(secrets/*)", "write_file(*.lock)")
_FILES = {_RULES[0]: "secrets/db.yml", _RULES[1]: "app.lock"}
_SECRET = "password: HUNTER2\n"

# What a call does to FILE, which the rule protects; FOLDER is where it lies.
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "`read_file`": ("read_file", {"path": "FILE"}),
    "`read_file` through a link": ("read_file", {"path": "link"}),
    "`search_files` for it by name": ("search_files", {"pattern": "pass", "path": "FILE"}),
    "`search_files` from above": ("search_files", {"pattern": "pass"}),
    "`cat FILE`": ("terminal", {"command": "cat FILE"}),
    "`tr a b < FILE`": ("terminal", {"command": "tr a a < FILE"}),
    "`cp FILE copy; cat copy`": ("terminal", {"command": "cp FILE copy; cat copy"}),
    "`grep -r . .`": ("terminal", {"command": "grep -rh . ."}),
    "a glob": ("terminal", {"command": "cat */*.yml *.l*"}),
    "a program that makes up the name": (
        "terminal",
        {"command": "python3 -c \"print(open('ELIF'[::-1]).read())\""},
    ),
    "an MCP server's or a plugin's reader": ("fetch_file", {"source": {"file": "FILE"}}),
    "an MCP server's reader, by a URI": ("read_resource", {"uri": "files:///FILE"}),
}
_WRITERS: dict[str, tuple[str, dict[str, Any]]] = {
    "`write_file`": ("write_file", {"path": "FILE", "content": "x\n"}),
    "`write_file` through a link": ("write_file", {"path": "link", "content": "x\n"}),
    "`patch`": ("patch", {"path": "FILE", "old_string": "password", "new_string": "x"}),
    "`patch` that does not fit": ("patch", {"path": "FILE", "old_string": "passwurd: x", "new_string": "x"}),
    "a diff": ("patch", {"diff": "--- a/FILE\n+++ b/FILE\n@@ -1 +1 @@\n-password: HUNTER2\n+x\n"}),
    "`echo x > FILE`": ("terminal", {"command": "echo x > FILE"}),
    "`sed -i s/a/b/ FILE`": ("terminal", {"command": "sed -i s/a/b/ FILE"}),
    "`mv other FILE`": ("terminal", {"command": "mv other FILE"}),
    "`rm FILE`": ("terminal", {"command": "rm -f FILE"}),
    "a program that writes it": ("terminal", {"command": "./write.py"}),
    "an MCP server's or a plugin's writer": ("store_file", {"target": "FILE"}),
}


class _World:
    """A workspace with a protected file, and the gate, tools and sandbox of a program."""

    def __init__(self, folder: Path, rule: str, *, confined: bool) -> None:
        self.file = _FILES.get(rule, "v1/key")
        self.workspace = folder / "ws"
        path = self.workspace / self.file
        path.parent.mkdir(parents=True)
        path.write_text(_SECRET)
        (self.workspace / "link").symlink_to(self.file)
        (self.workspace / "other").write_text("x\n")
        script = self.workspace / "write.py"
        script.write_text(f"#!/usr/bin/env python3\nopen({self.file!r}, 'w').write('x')\n")
        script.chmod(0o755)
        rules = read_path_rules([rule])
        mode = "auto" if confined else "off"
        self.confinement = Confinement(ConfinementSettings(mode, folder / "home", rules=rules))
        jails = JailGate(lambda: self.confinement)
        settings = ApprovalSettings(mode="auto", deny=(rule,))
        parts = GateParts(jails=lambda: jails)
        self.gate = PolicyGate(settings, Someone("once"), Kept(), folder / "home", parts)
        self._shared = SharedProcesses(confine=lambda: self.confinement)
        tools = (*FileTools(ToolPool(1), rules=rules), *ShellTools(self._shared))
        self._tools = {tool.name: tool for tool in tools}

    def close(self) -> None:
        self._shared.close()
        self.confinement.close()

    def try_call(self, name: str, arguments: dict[str, Any], *, writes: bool) -> str:
        """Make a call as the agent does and return what became of it."""
        encoded = msgspec.json.encode(arguments).replace(b"FILE", self.file.encode())
        filled = msgspec.json.decode(encoded.replace(b"ELIF", self.file[::-1].encode()))
        tool = self._tools.get(name) or self._foreign(name, writes=writes)
        return asyncio.run(self._run(tool, filled, writes=writes))

    async def _run(self, tool: Tool, arguments: dict[str, Any], *, writes: bool) -> str:
        call = GateCall("s1", ToolCall("c1", tool.name, "{}"), tool, arguments, str(self.workspace))
        decision = await self.gate.decide(call, lambda _event: None)
        if decision.verdict == "deny":
            assert "the rule deny: " in decision.reason
            return "refused"
        try:
            text = (await tool.run(context(self.workspace), arguments)).text
        except ToolError as error:
            text = f"{error.message} {error.hint}"
        kept = (self.workspace / self.file).read_text() == _SECRET
        if not kept or (not writes and "HUNTER2" in text):
            return "allowed"
        return "held by the sandbox" if tool.name == "terminal" else "left out"

    def _foreign(self, name: str, *, writes: bool) -> Tool:
        """Return a tool that another program brings and that uses the file without asking anyone."""

        async def use(_ctx: ToolContext, _arguments: dict[str, object]) -> ToolOutput:
            path = self.workspace / self.file
            return ToolOutput(str(path.write_text("x")) if writes else path.read_text())

        effects: frozenset[Effect] = frozenset(("write",) if writes else ("read",))
        return Tool(ToolSpec(name, "", {}), "t", effects, use)


def _make_table(folder: Path) -> str:
    """Try each way under each rule; return a row for all ways with the same outcomes."""
    ways_of: dict[tuple[str, ...], list[str]] = {}
    for ways, writes in ((_READERS, False), (_WRITERS, True)):
        for way, (name, arguments) in ways.items():
            cells: list[str] = []
            for rule in _RULES:
                with closing(
                    _World(folder / f"{name}-{len(list(folder.iterdir()))}", rule, confined=True)
                ) as world:
                    cells.append(world.try_call(name, arguments, writes=writes))
            ways_of.setdefault(tuple(cells), []).append(way)
    rows = [f"| way | `{_RULES[0]}` | `{_RULES[1]}` |", "|---|---|---|"]
    rows += [f"| {'; '.join(ways)} | {first} | {second} |" for (first, second), ways in ways_of.items()]
    return "\n".join(rows)


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[[str], _World]]:
    worlds: list[_World] = []

    def make(rule: str) -> _World:
        worlds.append(_World(tmp_path, rule, confined=False))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture(params=ENGINES, ids=str)
def an_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    case: EngineCase = request.param
    monkeypatch.setitem(engine.statuses, None, case.status())
    yield


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("an_engine")
def test_the_table_in_the_manual_is_what_happens(tmp_path: Path) -> None:
    assert _make_table(tmp_path) in _MANUAL.read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "writes"),
    [
        (*way, writes)
        for ways, writes in ((_READERS, False), (_WRITERS, True))
        for way in ways.values()
        if way[0] != "terminal"
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", _RULES)
def test_no_tool_reads_or_changes_a_protected_file(
    make_world: Callable[[str], _World], rule: str, name: str, arguments: dict[str, Any], writes: bool
) -> None:
    world = make_world(rule)
    outcome = world.try_call(name, arguments, writes=writes)
    if rule == _RULES[0] or writes:
        assert outcome in ("refused", "left out")
        assert (world.workspace / world.file).read_text() == _SECRET
    else:
        assert outcome == "allowed"


@pytest.mark.fast_rows("'././", "' 10", "pad=aaa", "other/", "new\\\\nfile", "paths")
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "./" * 3_000 + "FILE",
        "." + "/" * 5_000 + "FILE",
        "x/../" * 3_000 + "FILE",
        "other/../" * 20_000 + "FILE",
        "repo:///x?pad=" + "a" * 5_000 + "&path=FILE",
        "repo:///FILE?pad=" + "a" * 50_000,
        '{"pad": "' + "a" * 5_000 + '", "path": "FILE"}',
        '{"paths": [' + '"a/b", ' * 5_000 + '"FILE"]}',
        '{"paths": [' + ", ".join(f'"a/{number}"' for number in range(6_000)) + "]}",
        "FILE\n",
        "  FILE  \n\n",
        "secrets/two\nlines",
        "secrets/new\nfile",
    ],
    ids=lambda text: f"{text[:20]!r} {len(text)}",
)
def test_no_length_hides_a_protected_file_from_the_rules(
    make_world: Callable[[str], _World], text: str
) -> None:
    world = make_world(_RULES[0])
    (world.workspace / "secrets/two\nlines").touch()
    for writes in (False, True):
        assert world.try_call("fetch_file", {"source": [{"file": text}]}, writes=writes) == "refused"


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_long_texts_that_name_no_protected_file_pass(make_world: Callable[[str], _World]) -> None:
    world = make_world(_RULES[0])
    base64 = "iVBORw0KGgo/AAAANSUhEUg+/" * 4_000
    prose = "Keep the secrets/ folder closed.\n" * 1_000
    rows = msgspec.json.encode([{"id": number, "name": f"row {number % 50}"} for number in range(2_000)])
    for text in (base64, f"data:image/png;base64,{base64}", prose, rows.decode(), "x" * 100_000):
        assert world.try_call("fetch_file", {"source": text}, writes=False) == "allowed", text[:40]


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "cat " + "./" * 3_000 + "secrets/db.yml"},
        {"command": "cat " + "./" * 3_000 + "secr*/db.yml"},
        {"command": "bash", "stdin": "#" + "x" * 250_000 + "\ncat secrets/db.yml"},
    ],
    ids=lambda arguments: str(arguments)[:40],
)
def test_no_length_hides_a_protected_file_in_a_command_outside_a_sandbox(
    make_world: Callable[[str], _World], arguments: dict[str, str]
) -> None:
    assert make_world(_RULES[0]).try_call("terminal", arguments, writes=False) == "refused"


@pytest.mark.fast_rows(
    "cat secrets/db.yml",
    "cat app.py",
    "cat linked",
    "pushd",
    "python3 -c",
    "cd secrets",
    "ls secrets",
    "ls-False",
    "tar -C",
    "curl",
)
@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("cat secrets/db.yml", True),
        ("cat ./secrets/../secrets/db.yml", True),
        ("cd secrets && cat db.yml", True),
        ("cp -r secrets copy", True),
        ("python3 -c \"open('secrets/db.yml')\"", True),
        ("cd docs && cat ../secrets/db.yml", True),
        ("cd docs && cat linked", True),
        ("cd d*s; cat linked", True),
        ("bash -c 'pushd docs; cat linked'", True),
        ("tar -C docs -cf - linked", True),
        ("grep -fsecrets/db.yml app.py", True),
        ("tar -xzfsecrets/db.yml", True),
        ("curl -d @secrets/db.yml localhost", True),
        ("ls secrets", True),
        ("ls", False),
        ("ls -la docs", False),
        ("cat app.py", False),
        ("cat linked", False),
        (f"./tool docs {' '.join(map(str, range(2_600)))}", True),
        (f"ls docs {' '.join(map(str, range(2_600)))}", False),
        ("ls *; for folder in d*; do cd $folder; cat linked; done", True),
        ("ls() { cd docs; }; ls; cat linked", True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_command_outside_a_sandbox_is_refused_by_the_names_in_it(
    make_world: Callable[[str], _World], command: str, is_refused: bool
) -> None:
    world = make_world(_RULES[0])
    (world.workspace / "docs").mkdir()
    os.link(world.workspace / world.file, world.workspace / "docs/linked")
    assert (world.try_call("terminal", {"command": command}, writes=True) == "refused") is is_refused


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("read_file", {"path": "secrets"}, "refused"),
        ("search_files", {"path": "secrets", "target": "names", "pattern": "*"}, "refused"),
        ("search_files", {"target": "names", "pattern": "d*"}, "left out"),
    ],
)
def test_the_names_in_a_closed_folder_are_not_listed(
    make_world: Callable[[str], _World], tool: str, arguments: dict[str, str], shown: str
) -> None:
    world = make_world(_RULES[0])
    (world.workspace / "secrets/dHUNTER2").touch()
    assert world.try_call(tool, arguments, writes=False) == shown


def test_files_created_later_are_protected_too(make_world: Callable[[str], _World]) -> None:
    world = make_world(_RULES[1])
    assert world.confinement.policy(world.workspace).fixed == (world.workspace / "app.lock",)
    (world.workspace / "sub").mkdir()
    (world.workspace / "sub/new.lock").write_text("")
    assert set(world.confinement.policy(world.workspace).fixed) == {
        world.workspace / "app.lock",
        world.workspace / "sub/new.lock",
    }


@pytest.mark.slow
def test_a_glob_through_the_whole_disk_is_refused_outside_a_sandbox(
    make_world: Callable[[str], _World],
) -> None:
    world = make_world(_RULES[0])
    for glob in ("o*", "*.json", "*/*.json"):
        assert world.try_call("terminal", {"command": f"ls {glob}"}, writes=False) != "refused"
    for glob in ("secr*/d?.yml", "**/db.yml", "./*/../secrets/*.y[a-m]l"):
        assert world.try_call("terminal", {"command": f"cat {glob}"}, writes=False) == "refused"
    make = "mkdir many; cd many; seq 21000 | xargs touch"
    subprocess.run(["sh", "-c", make], cwd=world.workspace, check=True)
    assert world.try_call("terminal", {"command": "cat */no-such-*"}, writes=False) == "refused"


@pytest.mark.parametrize(("rule", "kind"), [(_RULES[0], "read"), (_RULES[0], "write"), (_RULES[1], "write")])
def test_no_opening_reaches_a_protected_file(
    make_world: Callable[[str], _World], rule: str, kind: Any
) -> None:
    world = make_world(rule)
    policy = world.confinement.policy(world.workspace)
    with pytest.raises(ToolDenied, match="a deny rule protects"):
        policy.with_openings([Opening(kind, str(world.workspace / world.file))])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "secrets/a"}),
        ("patch", {"path": "secrets/a", "old_string": "x", "new_string": "y"}),
        ("terminal", {"command": "cat secrets/a"}),
    ],
)
def test_an_ask_rule_for_files_asks_for_every_tool(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    bench = Bench(tmp_path, Someone("no"), mode="auto", ask=["read_file(secrets/*)"])
    (bench.workspace / "secrets").mkdir()
    (bench.workspace / "secrets/a").write_text("x")
    assert bench.decide(tool, **arguments).verdict == "deny"
    assert len(bench.person.asked) == 1


def test_the_file_tools_check_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/a").write_text(_SECRET)
    os.symlink("secrets", tmp_path / "door")
    tools = Registry(FileTools(ToolPool(1), rules=read_path_rules([_RULES[0]])))
    for name, arguments in (
        ("read_file", {"path": "door/a"}),
        ("write_file", {"path": "door/a", "content": "x"}),
        ("patch", {"path": "door/a", "old_string": "x", "new_string": "y"}),
    ):
        with pytest.raises((ToolDenied, BadInput), match=r"the rule deny: read_file\(secrets/\*\) protects"):
            asyncio.run(tools.get(name).run(context(tmp_path), arguments))


_TARGET_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "v1/key", "content": "x\n"}),
    ("terminal", {"command": "echo x > v1/key"}),
    ("terminal", {"command": "python3 -c \"open('v1/k'+'ey', 'w').write('x')\""}),
    ("read_file", {"path": "v1/key"}),
    ("search_files", {"pattern": "HUNTER2"}),
    ("terminal", {"command": "cat v1/key"}),
    ("fetch_file", {"source": {"file": "v1/key"}}),
]


@pytest.mark.slow
@pytest.mark.usefixtures("an_engine")
@pytest.mark.parametrize("pattern", ["current/*", "current/k*", "current/key", "current", "key.link"])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_rule_protects_the_file_that_a_link_in_its_own_name_leads_to(
    tmp_path: Path, kind: str, pattern: str
) -> None:
    world = _World(tmp_path, f"{kind}({pattern})", confined=True)
    (world.workspace / "current").symlink_to("v1")
    (world.workspace / "key.link").symlink_to("current/key")
    for name, arguments in _TARGET_CALLS if kind == "read" else _TARGET_CALLS[:3]:
        assert world.try_call(name, arguments, writes=kind == "write") != "allowed", (name, arguments)
    assert read_path_rules([f"{kind}({pattern})"]).find("other", world.workspace, writes=True) == ""
    world.close()


_LINK_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "plain.txt"}),
    ("search_files", {"pattern": "HUNTER2", "path": "plain.txt"}),
    ("search_files", {"pattern": "HUNTER2"}),
    ("terminal", {"command": "cat plain.txt"}),
    ("terminal", {"command": "echo x >> mine; cat plain.txt"}),
    ("terminal", {"command": "echo x >> mine; cat p*.t*"}),
    ("write_file", {"path": "plain.txt", "content": "x\n"}),
    ("patch", {"path": "plain.txt", "old_string": "password", "new_string": "x"}),
    ("terminal", {"command": "echo x > plain.txt"}),
    ("terminal", {"command": "python3 -c \"open('plain'+'.txt', 'w').write('x')\""}),
]


@pytest.mark.slow
@pytest.mark.usefixtures("an_engine")
@pytest.mark.parametrize("rule", _RULES)
def test_a_rule_protects_a_file_by_each_of_its_hard_links(tmp_path: Path, rule: str) -> None:
    world = _World(tmp_path, rule, confined=True)
    os.link(world.workspace / world.file, world.workspace / "plain.txt")
    is_closed = rule.startswith("read")
    for name, arguments in _LINK_CALLS if is_closed else _LINK_CALLS[6:]:
        outcome = world.try_call(name, arguments, writes=not is_closed)
        assert outcome != "allowed", (name, arguments, outcome)
    world.close()
    assert (world.workspace / world.file).read_text() == _SECRET


if __name__ == "__main__":  # prints the table for the manual
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        print(_make_table(Path(os.path.realpath(folder))))
