"""All configured servers of one process, and their tools as our own tools.

A session keeps the tools that were last known of each server when it began. Known lists are stored on disk. A
server without a stored list is contacted before the first session, which waits for it for a while; after a
failure, it is not contacted again for five minutes. Every other server is started by the first call of one of
its tools, which also updates its list for later sessions.
"""

from __future__ import annotations

import asyncio
import fnmatch
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from whet.config.permission_settings import McpServerSettings, McpSettings
from whet.contract.errors import BadInput, ToolError
from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput, ToolSpec
from whet.log import mask
from whet.mcp.finding import ToolFinder
from whet.mcp.first_start import SKIPPED, StartWait, end_starts, wait_for_starts, wait_limit_s
from whet.mcp.kept import RETRY_AFTER_MS, read_stored, store_failure
from whet.mcp.listing import (
    CHARS_PER_TOKEN,
    Catalogue,
    Listing,
    Offered,
    content_of,
    describe_idle,
    read_listing,
    size_chars,
)
from whet.mcp.progress import ProgressLines
from whet.mcp.reading import run_reader
from whet.mcp.remote import Remote, RemoteParts, check_server
from whet.mcp.results import as_failure, as_output
from whet.mcp.server_requests import CallPerson

TOOLSET = "mcp"
PREFIX = "mcp__"
GUEST = "editor-"
"""The prefix of the names of servers that an editor configures for one session."""
_MARK_CHARS = 400


class NoticeSink(Protocol):
    """Collects a session's notices for display."""

    def add_notice(self, text: str, *, must_show: bool = False) -> None:
        """Add a line for the person. `must_show`: every interface shows it."""
        ...


class Servers:
    """The servers of one process. Their events are reported to every active session.

    `cap_chars`: the longest result. `without`: patterns of tool names that are not offered.
    """

    def __init__(
        self,
        settings: McpSettings,
        reach: RemoteParts,
        *,
        cap_chars: int = 30_000,
        without: Collection[str] = (),
    ) -> None:
        self.listings: dict[str, Listing] = {}
        self.remotes: dict[str, Remote] = {}
        self.failures: dict[str, str] = {}
        self.is_stale = False
        """Whether a server's list is newer than the last `tools` result."""
        self._reach = reach
        self._cap_chars = cap_chars
        self._search_above_chars = settings.search_above_tokens * CHARS_PER_TOKEN
        self._without = without
        self._sinks: weakref.WeakSet[NoticeSink] = weakref.WeakSet()
        self._queued_notices: list[tuple[str, bool]] = []
        self._listed_names: set[str] = set()
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._late_names: list[str] = []
        for name, server in settings.servers.items():
            self._add(name, server)

    def _add(self, name: str, server: McpServerSettings) -> None:
        check_server(name, server)
        if not server.enabled:
            return
        self.remotes[name] = Remote(
            name, server, self._reach, self._notify, lambda catalogue: self._relist(name, server, catalogue)
        )

    async def learn(self, wait: StartWait | None = None) -> None:
        """Learn every server's tools. Contacts the servers without a stored list; one that is not ready in
        time goes on starting, and later sessions have its tools.

        Never raises. An unreachable server has no tools, and its failure is reported.
        """
        unknown = {name: remote for name, remote in self.remotes.items() if not self._take_stored(name)}
        if not unknown:
            return
        self._starts = {name: asyncio.create_task(self._learn_server(name)) for name in unknown}
        limits_s = {
            name: wait_limit_s(remote.settings, self._reach.wait_s) for name, remote in unknown.items()
        }
        for name, reason in (await wait_for_starts(self._starts, limits_s, wait)).items():
            now_ms = self._reach.clock.unix_ms()
            store_failure(self._reach.home, name, unknown[name].settings, reason, now_ms)
            if reason != SKIPPED:
                self._late_names.append(name)
            self._report_failure(
                name, f"{reason}; later sessions have them once it is; whet mcp test {name} waits longer"
            )

    def tools(self) -> list[Tool]:
        """Return the tools for a session that begins now, ordered as in the settings and then by name.

        If they would fill too much of a prompt, they are deferred, and two tools that find and call them come
        first.
        """
        self.is_stale = False
        tools_by_server: dict[str, list[Tool]] = {}
        size = 0
        for name, listing in self.listings.items():
            enabled = [tool for tool in listing.offered if not _is_named(tool.spec.name, self._without)]
            tools_by_server[name] = [self._make_tool(name, tool) for tool in enabled]
            size += sum(size_chars(tool.spec) for tool in tools_by_server[name])
        if size <= self._search_above_chars:
            return [tool for tools in tools_by_server.values() for tool in tools]
        deferred = {
            name: [msgspec.structs.replace(tool, tags=tool.tags | {"deferred"}) for tool in tools]
            for name, tools in tools_by_server.items()
            if tools
        }
        mark = "_editor" if self._are_guests else ""
        finder_tools = ToolFinder(deferred, TOOLSET, mark).tools()
        return [*finder_tools, *(tool for tools in deferred.values() for tool in tools)]

    @property
    def _are_guests(self) -> bool:
        return bool(self.remotes) and all(name.startswith(GUEST) for name in self.remotes)

    def attach_sink(self, specs: Sequence[ToolSpec], sink: NoticeSink) -> None:
        """Report server events to `sink` as long as it exists. Reports at once how the tools differ from the
        session's `specs`."""
        self._sinks.add(sink)
        for line, must_show in self._queued_notices:
            sink.add_notice(line, must_show=must_show)
        for line in self._describe_changes(specs):
            sink.add_notice(line)
        self._queued_notices.clear()

    async def aclose(self) -> None:
        """Release every server. A server that a session waited for and that is still not ready is started
        again outside of this program, so that later sessions have its tools."""
        late = [name for name in self._late_names if not self._starts[name].done()]
        await end_starts(self._starts)
        await asyncio.gather(*(remote.aclose() for remote in self.remotes.values()))
        self._reach.guardian.close()
        if self._reach.finish_start is not None:
            for name in late:
                self._reach.finish_start(name)

    def _take_stored(self, name: str) -> bool:
        """Take a server's stored list, if there is one. Returns False if the server must be contacted."""
        settings = self.remotes[name].settings
        stored = read_stored(self._reach.home, name, settings)
        if stored is not None and (stored.tools or stored.offers or not stored.failure):
            self._take_listing(name, settings, stored.catalogue)
            return True
        self.listings[name] = Listing()
        if stored is not None and self._reach.clock.unix_ms() - stored.at_ms < RETRY_AFTER_MS:
            self._report_failure(name, f"{stored.failure} (tried a short while ago)")
            return True
        return False

    def _take_listing(self, name: str, settings: McpServerSettings, catalogue: Catalogue) -> None:
        self.listings[name] = listing = read_listing(name, settings, catalogue)
        self._listed_names.add(name)
        if listing.idle:
            self._notify(describe_idle(name, listing), must_show=True)

    async def _learn_server(self, name: str) -> None:
        remote = self.remotes[name]
        try:
            catalogue = await remote.fetch_catalogue()
        except ToolError as error:
            return self._report_failure(
                name, mask(f"{error.message}; {error.hint}" if error.hint else error.message)
            )
        self._take_listing(name, remote.settings, catalogue)
        if self.failures.pop(name, ""):  # no session waits any more
            self._notify(f"MCP server {name} is ready; new sessions have its tools")

    def _report_failure(self, name: str, failure: str) -> None:
        self.failures[name] = failure
        self._notify(f"MCP server {name} has no tools in this session: {failure}", must_show=True)

    def _make_tool(self, server: str, offered: Offered) -> Tool:
        remote, cap_chars = self.remotes[server], self._cap_chars
        effect: Effect = "network" if remote.settings.url else "execute"

        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            try:
                await self._refuse_change(server, offered)
                if offered.reads:
                    result = await run_reader(remote, offered.own_name, arguments)
                    return as_output(server, result, {}, cap_chars, is_prompt=offered.reads == "prompts")
                lines = ProgressLines(context.output, self._reach.clock)
                asker = CallPerson(context.session_id, context.ask)
                result = await remote.call(offered.own_name, arguments, lines, asker)
            except BadInput:
                raise
            except ToolError as error:  # its message may contain the server's own words
                return as_failure(server, error)
            return as_output(server, result, offered.output_schema, cap_chars)

        hints, tags = offered.hints, {"untrusted", "mcp"}
        if hints.destructive:
            tags.add("destructive")
        if hints.open_world and hints.read_only is False:
            tags.add("sends")
        return Tool(
            spec=offered.spec,
            toolset=TOOLSET,
            effects=frozenset({effect}),
            run=run,
            parallel=hints.read_only is True,
            timeout_s=None,
            output_cap_chars=cap_chars + _MARK_CHARS,
            tags=frozenset(tags),
            content=lambda: self._current_content(server, offered),
        )

    def _current_content(self, server: str, offered: Offered) -> str:
        """Return the server's current description of a tool, or "" if it does not offer it any more."""
        for tool in self.listings[server].offered:
            if tool.own_name == offered.own_name:
                return content_of(tool)
        return ""

    async def _refuse_change(self, server: str, offered: Offered) -> None:
        """Connect to the server, which updates its tools. Raises ToolError if it does not offer the tool any
        more, or has changed it since the call was allowed."""
        allowed = self._current_content(server, offered)
        await self.remotes[server].fetch_catalogue()
        current = self._current_content(server, offered)
        if not current:
            raise ToolError(f"the MCP server {server} offers no tool {offered.own_name} any more")
        if current != allowed:
            raise ToolError(
                f"the MCP server {server} has changed {offered.own_name} since this call was allowed, so"
                " nothing was run",
                hint="call it again: it is judged as what it is now",
            )

    def _relist(self, name: str, settings: McpServerSettings, catalogue: Catalogue) -> None:
        """Take a server's new list, and report how it differs from the last one."""
        listing = read_listing(name, settings, catalogue)
        before = self.listings.get(name)
        if before is None or before == listing:
            return
        self.listings[name] = listing
        self.is_stale: bool = True
        now = {tool.spec.name: tool.spec for tool in listing.offered}
        changed = _difference({tool.spec.name: tool.spec for tool in before.offered}, now)
        if changed and name in self._listed_names:
            self._notify(f"MCP server {name} has changed its tools ({changed}); new sessions see them")

    def _describe_changes(self, specs: Sequence[ToolSpec]) -> list[str]:
        lines: list[str] = []
        specs_by_name = {
            tool.spec.name: tool.spec for listing in self.listings.values() for tool in listing.offered
        }
        is_guest = self._are_guests
        names = [spec.name for spec in specs if spec.name.startswith(PREFIX)]
        mine = {name for name in names if name.startswith(PREFIX + GUEST) == is_guest}
        frozen = {spec.name: spec for spec in specs if spec.name in mine}
        changed = [
            name
            for name, spec in frozen.items()
            if name in specs_by_name and not _is_same(spec, specs_by_name[name])
        ]
        gone = [name for name in frozen if name not in specs_by_name]
        if changed:
            names = _format_names(changed)
            lines.append(f"MCP: {names} changed since this session began; it keeps what it began with")
        if gone:
            lines.append(f"MCP: {_format_names(gone)} can't be called any more")
        return lines

    def _notify(self, line: str, *, must_show: bool = False) -> None:
        line = " ".join(line.split())[:600]
        if not self._sinks:
            self._queued_notices.append((line, must_show))
        for sink in self._sinks:
            sink.add_notice(line, must_show=must_show)


def _difference(before: Mapping[str, ToolSpec], now: Mapping[str, ToolSpec]) -> str:
    parts = {
        "new": [name for name in now if name not in before],
        "gone": [name for name in before if name not in now],
        "changed": [name for name in now if name in before and not _is_same(now[name], before[name])],
    }
    return "; ".join(f"{word}: {_format_names(names)}" for word, names in parts.items() if names)


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _is_same(first: ToolSpec, second: ToolSpec) -> bool:
    return msgspec.json.encode(first) == msgspec.json.encode(second)


def _format_names(names: Sequence[str]) -> str:
    joined = ", ".join(names[:5])
    return f"{joined} and {len(names) - 5} more" if len(names) > 5 else joined
