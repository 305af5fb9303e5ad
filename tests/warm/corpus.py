"""More than 300 calls of every built-in tool, really run, each with the outcome that a person gives it.

A case is a tool, arguments, and the label: what a careful reader would say of that call alone. Tricky ones:
exit codes that answer, tests that fail on purpose, JSON that says no with exit 0, warnings that say error,
pipes that hide an exit code, logs full of errors that are only shown.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.tools.running import context
from whet.contract.delegation import HelperWish
from whet.contract.errors import ToolError
from whet.contract.receipts import CallEffects
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.lanes import ToolPool
from whet.store.calls import StoredCall
from whet.store.database import StateDatabase
from whet.tools.learning import WarmRequest
from whet.tools.page_source import WebLimits
from whet.tools.process import Processes
from whet.tools.todo import TodoLists
from whet.tools.toolsets.delegation import DelegationTools
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.planning import PlanningTools
from whet.tools.toolsets.session import RecallTools, SessionTools
from whet.tools.toolsets.skills import WarmTools
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools
from whet.tools.toolsets.web import WebTools
from whet_lab.practice.server import PracticeServer


class Case(NamedTuple):
    """A call and its label."""

    tool: str
    arguments: dict[str, Any]
    label: str


_LOG = "10:00 error: disk full\n10:01 fatal: gave up\nTraceback (most recent call last):\nValueError: x\n"
_TEST = """import unittest
class T(unittest.TestCase):
    def test_a(self): self.assertEqual({a}, {b})
    def test_b(self): pass
if __name__ == "__main__":
    unittest.main()
"""


def furnish(folder: Path) -> None:
    """Write the workspace of the corpus."""
    (folder / "src").mkdir(parents=True)
    for n in range(12):
        (folder / f"src/mod{n}.py").write_text(f'"""Module {n}."""\n\n\ndef f{n}(x):\n    return x + {n}\n')
        (folder / f"test_ok{n}.py").write_text(_TEST.format(a=n, b=n))
        (folder / f"test_bad{n}.py").write_text(_TEST.format(a=n, b=n + 1))
        (folder / f"test_broken{n}.py").write_text(f"import no_such_module_{n}\n" + _TEST.format(a=1, b=1))
        (folder / f"raises{n}.py").write_text(f"print('begin')\nraise ValueError('bad {n}')\n")
        (folder / f"log{n}.txt").write_text(_LOG * (n + 1))
        (folder / f"data{n}.json").write_text(f'{{"success": false, "n": {n}, "error": "x"}}')
        (folder / f"good{n}.json").write_text(f'{{"success": true, "n": {n}, "error": null, "errors": []}}')
    (folder / "blob.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "utf.txt").write_text("größe 値 размер\n" * 3)


def cases(url: str, rounds: int = 12) -> Iterator[Case]:
    """Give every case, those of the common kinds so many times with other words."""
    for n in range(rounds):
        sh = lambda command, label, **more: Case("terminal", {"command": command, **more}, label)  # noqa: E731
        yield sh(f"grep -n f{n} src/mod{n}.py", "ok")
        yield sh(f"grep nowhere{n} src/mod{n}.py", "ok")
        yield sh(f"grep x src/missing{n}.py", "failed")
        yield sh(f"python3 -m unittest -q test_bad{n}.py", "ok")
        yield sh(f"python3 -m unittest -q test_broken{n}.py", "failed")
        yield sh(f"python3 raises{n}.py", "failed")
        yield sh(f"python3 raises{n}.py 2>&1 | tail -3", "failed")
        yield sh(f"cat log{n}.txt", "ok")
        yield sh(f"cat data{n}.json", "ok")
        yield sh(f"cp data{n}.json out{n}.json && python3 -c \"print(open('out{n}.json').read())\"", "failed")
        yield sh(f"python3 -c \"print(open('good{n}.json').read())\"", "ok")
        yield sh(f"diff src/mod{n}.py src/mod{(n + 1) % 12}.py", "ok")
        yield sh(f"frobnicate{n} --all", "failed")
        yield sh(f"echo 'warning: error{n} is only a word here'; true", "ok")
        yield Case("read_file", {"path": f"src/mod{n}.py"}, "ok")
        yield Case("read_file", {"path": f"log{n}.txt"}, "ok")
        yield Case("read_file", {"path": f"data{n}.json"}, "ok")
        yield Case("read_file", {"path": f"src/gone{n}.py"}, "failed")
        yield Case("search_files", {"pattern": f"def f{n}"}, "ok")
        yield Case("search_files", {"pattern": f"nobody{n}wrote"}, "ok")
        yield Case("write_file", {"path": f"new/file{n}.txt", "content": "error: x\n"}, "ok")
        yield Case(
            "patch", {"path": f"src/mod{n}.py", "old_string": f"x + {n}", "new_string": f"x - {n}"}, "ok"
        )
        yield Case(
            "patch", {"path": f"src/mod{n}.py", "old_string": "not there", "new_string": "y"}, "failed"
        )
        yield Case("todo", {"items": [{"content": f"fix error {n}"}]}, "ok")
    yield from _odd(url)


def _odd(url: str) -> Iterator[Case]:
    for command, label in (
        ("[ -e nothing ]", "ok"),
        ("test -d src", "ok"),
        ("cmp log0.txt log1.txt", "ok"),
        ("which no-such-program", "ok"),
        ("ls /nonexistent", "failed"),
        ("ls /nonexistent; true", "ok"),
        ("cd nowhere && make", "failed"),
        ("git status", "failed"),
        ("exit 3", "failed"),
        ("true", "ok"),
        ("python3 -c 'import sys; sys.exit(2)'", "failed"),
        ("python3 -c 'print(0, \"errors found\")'", "ok"),
        ("bash -c 'no_such_builtin' || true", "ok"),
        ("head -c 300 blob.bin", "ok"),
        ("cat utf.txt", "ok"),
        ("pgrep -f surely-nothing-runs-like-this-xyz[q]", "ok"),
        ("sed -n 1,2p log1.txt", "ok"),
        ("python3 -m no_such_module", "failed"),
        ("kill -9 $$", "failed"),
    ):
        yield Case("terminal", {"command": command}, label)
    yield Case("terminal", {"command": "sleep 5", "timeout_s": 0.05}, "failed")
    yield Case("terminal", {"command": "cat", "stdin": "fatal: a text\n"}, "ok")
    yield Case("terminal", {"command": "ls", "workdir": "nowhere"}, "failed")
    yield Case("terminal", {"command": "sleep 0.01", "background": True}, "ok")
    yield Case("process", {"action": "list"}, "ok")
    yield Case("process", {"action": "poll", "id": "p99"}, "failed")
    yield Case("web_fetch", {"url": f"{url}/v1/models"}, "ok")
    yield Case("web_fetch", {"url": f"{url}/no/such/page"}, "failed")
    yield Case("web_fetch", {"url": "not a url"}, "failed")
    yield Case("clarify", {"question": "which?"}, "denied")
    yield Case("session_search", {"query": "anything"}, "ok")
    yield Case("session_search", {}, "failed")
    yield Case("recall", {"query": "anything"}, "ok")
    yield Case("delegate_task", {"task": "sum up"}, "ok")
    yield Case("delegate_task", {"task": "fail"}, "failed")
    yield Case("warm_session", {"action": "list"}, "ok")
    yield Case("warm_session", {"action": "load", "name": "gone"}, "failed")
    yield Case("read_file", {"path": "blob.bin"}, "ok")
    yield Case("read_file", {"path": "../../etc/passwd"}, "denied")
    yield Case("read_file", {"pfad": "x"}, "failed")
    yield Case("write_file", {"path": "src", "content": "x"}, "failed")
    yield Case("search_files", {"pattern": "("}, "ok")
    yield Case("search_files", {"pattern": "x", "path": "gone"}, "failed")
    yield Case("todo", {"items": "nothing"}, "failed")


async def run_cases(folder: Path, database: StateDatabase, rounds: int) -> list[tuple[Case, StoredCall]]:
    """Run every case with the real tools and give each as the store would have it."""
    furnish(folder)
    pool, processes = ToolPool(2), Processes()
    tools = {tool.name: tool for tool in _tools(pool, processes, database)}
    try:
        with PracticeServer() as server:
            found = list(cases(server.url, rounds))
            places = asyncio.Semaphore(4)

            async def one(number: int, case: Case) -> tuple[Case, StoredCall]:
                async with places:
                    return case, await _run(tools[case.tool], case, number, folder)

            return list(await asyncio.gather(*(one(number, case) for number, case in enumerate(found))))
    finally:
        processes.close()
        pool.close()


def _tools(pool: ToolPool, processes: Processes, database: StateDatabase) -> list[Tool]:
    async def spawn(parent: ToolContext, wish: HelperWish) -> ToolOutput:
        return (
            ToolOutput("could not", error_kind="failed")
            if wish.task == "fail"
            else ToolOutput("error-free report")
        )

    async def act(ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
        return {"error": "there is no such template"} if request.name == "gone" else {"templates": []}

    return [
        *FileTools(pool, ripgrep="rg" if shutil.which("rg") else None),
        *ShellTools(SharedProcesses(processes)),
        *WebTools(pool, WebLimits(allow_private=True)),
        *PlanningTools(TodoLists()),
        *SessionTools(database),
        *RecallTools(database),
        *DelegationTools(spawn),
        *WarmTools(act),
    ]


async def _run(tool: Tool, case: Case, number: int, folder: Path) -> StoredCall:
    ctx = msgspec.structs.replace(context(folder), session_id="talk")
    try:
        output = await tool.run(ctx, case.arguments)
    except ToolError as error:
        output = ToolOutput(error.message, error_kind=error.kind)
    arguments = msgspec.json.encode(case.arguments).decode()
    return StoredCall(
        number,
        number,
        1,
        number,
        case.tool,
        arguments,
        output.text,
        0,
        output.error_kind,
        output.exit_code,
        "rule",
        CallEffects(pipeline=output.pipeline),
    )
