"""What is declared of each tool, what a declaration loads, and the bounds that calls are kept to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.running import call, context, find_tool
from whet.contract.tags import BUILT_IN
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.lanes import ToolPool
from whet.tools.learning import WarmRequest
from whet.tools.page_source import FetchedPage, RefuseRedirect
from whet.tools.todo import TodoLists
from whet.tools.toolsets.code import CodeTools
from whet.tools.toolsets.delegation import DelegationTools
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.memory import MemoryTools
from whet.tools.toolsets.planning import PlanningTools
from whet.tools.toolsets.session import RecallTools, SessionTools
from whet.tools.toolsets.skills import SkillTools, WarmTools
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools
from whet.tools.toolsets.web import SearchTools, WebTools

NEVER: Any = None  # what a declaration keeps for its calls, and no test here calls

R, W, X, N = "read", "write", "execute", "network"
DECLARED: dict[str, tuple[str, str, bool, bool, float | None]] = {
    "read_file": ("file", R, True, True, 30),
    "write_file": ("file", W, False, False, 30),
    "patch": ("file", W, False, False, 30),
    "search_files": ("file", R, True, True, 60),
    "terminal": ("terminal", X, False, False, None),
    "process": ("terminal", X, False, False, None),
    "web_fetch": ("web", N, True, True, 60),
    "web_search": ("web", N, True, True, 60),
    "todo": ("planning", R, False, True, 120),
    "clarify": ("planning", R, False, True, None),
    "memory": ("memory", W, False, True, 120),
    "skills_list": ("skills", R, True, True, 120),
    "skill_view": ("skills", R, True, True, 120),
    "skill_manage": ("skills", W, False, True, 120),
    "warm_session": ("skills", W, False, False, 600),
    "session_search": ("session", R, True, True, 30),
    "recall": ("session", R, True, True, 30),
    "delegate_task": ("delegation", R, True, True, None),
    "code_symbols": ("code", R, True, True, 60),
}


def made() -> list[Tool]:
    pool = ToolPool(1)
    return [
        *FileTools(pool),
        *ShellTools(SharedProcesses()),
        *WebTools(pool),
        *SearchTools(NEVER),
        *PlanningTools(TodoLists()),
        *MemoryTools(NEVER),
        *SkillTools(NEVER),
        *WarmTools(NEVER),
        *SessionTools(NEVER),
        *RecallTools(NEVER),
        *DelegationTools(NEVER),
        *CodeTools(NEVER),
    ]


def test_effects_and_limits_of_every_tool() -> None:
    fields = {
        tool.name: (tool.toolset, *tool.effects, tool.parallel, tool.repeatable, tool.timeout_s)
        for tool in made()
    }
    assert {name: fields[name] for name in DECLARED} == DECLARED and set(fields) == set(BUILT_IN)
    assert [tool.name for tool in made() if "untrusted" in tool.tags] == ["web_fetch", "web_search"]


def test_a_session_that_calls_no_tool_loads_none() -> None:
    program = (
        "import sys\n"
        "from whet.app import parts\n"
        "print(*sorted(name for name in sys.modules if name.startswith('whet.tools.')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(run.stdout.split())
    others = {name for name in modules if not name.startswith("whet.tools.toolsets")}
    declarations = {
        "whet.tools.page_source",
        "whet.tools.registry",
        "whet.tools.signature",
        "whet.tools.todo",
    }
    assert others == declarations


def test_processes_are_made_at_the_first_command_and_are_the_same_ever_after() -> None:
    shared = SharedProcesses()
    shared.close()
    first = shared.get()
    assert shared.get() is first
    assert SharedProcesses(first).get() is first
    shared.close()


class Pages:
    """A site of long pages that counts what is asked for."""

    def __init__(self, size: int, status: int = 200) -> None:
        self.asked: list[str] = []
        self._size = size
        self._status = status

    async def fetch(self, url: str, refuse: RefuseRedirect | None = None) -> FetchedPage:
        self.asked.append(url)
        return FetchedPage(url, self._status, "text/plain", b"x" * self._size, False)


def fetched(pages: Pages, *calls: dict[str, Any]) -> list[ToolOutput]:
    async def run() -> list[ToolOutput]:
        fetch = find_tool(WebTools(ToolPool(1), fetcher=pages), "web_fetch")
        return [await call(fetch, context(Path()), **one) for one in calls]

    return asyncio.run(run())


def shown(output: ToolOutput) -> int:
    return output.text.split("\n\n", 1)[1].split("\n")[0].count("x")


def test_a_page_is_read_in_parts_and_fetched_once() -> None:
    pages = Pages(30_000)
    first, second, third = fetched(
        pages, {"url": "a"}, {"url": "a", "start": 20_000}, {"url": "a", "start": 40_000}
    )
    assert (shown(first), shown(second), shown(third)) == (20_000, 10_000, 0)
    assert first.text.endswith("[more: start=20000]") and "more:" not in second.text
    assert "characters 20000-30000 of 30000" in second.text
    assert pages.asked == ["a"]


def test_a_part_has_at_least_200_and_at_most_28000_characters() -> None:
    small, large = fetched(Pages(30_000), {"url": "a", "max_chars": 1}, {"url": "a", "max_chars": 10**6})
    assert (shown(small), shown(large)) == (200, 28_000)


def test_two_long_pages_are_kept() -> None:
    pages = Pages(300)
    wanted = [{"url": url, "max_chars": 200} for url in "abc"]
    fetched(pages, *wanted, *({"url": url, "start": 200} for url in "cba"))
    assert pages.asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize(("status", "text_size", "is_error"), [(400, 2_000, True), (399, 9_000, False)])
def test_an_error_page_is_a_failure_of_which_little_is_shown(
    status: int, text_size: int, is_error: bool
) -> None:
    (output,) = fetched(Pages(9_000, status), {"url": "a"})
    assert (output.error_kind == "failed", shown(output)) == (is_error, text_size)
    assert (f"HTTP {status}" in output.text) == is_error and "more:" not in output.text


def test_what_requests_say_of_the_tools_has_a_limit() -> None:
    limits = {"file": 2_600, "terminal": 1_500, "web": 1_000, "planning": 1_000}
    for toolset, limit in limits.items():
        tools = [tool for tool in made() if tool.toolset == toolset]
        assert tools and sum(len(msgspec.json.encode(tool.spec)) for tool in tools) <= limit, toolset


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [({}, 20, 0), ({"min_messages": -1, "max_sessions": -1}, 0, 0), ({"max_sessions": 3}, 20, 3)],
)
def test_the_bounds_of_a_template_are_never_below_nothing(
    given: dict[str, int], least: int, most: int
) -> None:
    asked: list[WarmRequest] = []

    async def act(ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
        asked.append(request)
        return {}

    tool = find_tool(WarmTools(act), "warm_session")
    output = asyncio.run(
        tool.run(context(Path(".")), {"action": "build", "name": "mine", "tags": ["x"], **given})
    )
    assert output.error_kind == ""
    assert asked == [WarmRequest("build", "mine", "", False, least, most, "", ("x",))]
