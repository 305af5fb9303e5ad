"""One configured server: started on first use, restarted after a failure, queried for its tools.

After a failure, the next call restarts it, each time after a longer pause. Each event outside of a call (the
server ended, changed its tools, made a request) is reported to the person in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whet import log as masking
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.config.secrets import is_secret_name
from whet.contract.errors import ConfigError, ToolError
from whet.mcp.connection import Connection, ConnectionListener, Progress, RpcFailed, timeout_error
from whet.mcp.first_start import WAIT_S
from whet.mcp.kept import KeptListing, config_digest, store_failure, write_stored
from whet.mcp.listing import SERVER_NAME, Catalogue, sort_tools
from whet.mcp.reading import LISTS
from whet.mcp.server_requests import ELICITATION, CallPerson
from whet.mcp.stdio import Launch, ServerJail, StdioTransport, server_environment
from whet.mcp.transport import ServerFailed, SessionLost, Transport
from whet.rpc import METHOD_NOT_FOUND
from whet.tools.guardian import Guardian

log: logging.Logger = logging.getLogger("whet.mcp")
# As in a shell, what is behind `:-` is for a variable that is not set.
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_LONGEST_PAUSE_S = 60.0
_WAITED_FOR_S = 4.0
_UNKNOWN = "whether it did what was asked is unknown"
PING_S = 5.0
_RELIST_PAUSE_S = 1.0
_PART_S = 5.0
_LONGEST_CALL_S = 3_600.0
T = TypeVar("T")
Operation = Callable[[Connection, asyncio.Timeout], Awaitable[T]]
"""A call over a connection. It may change its time limit."""
_REFUSED = {
    "sampling/createMessage": "asked to use your model; refused",
    ELICITATION: "has a question for a person, and got no answer",
}


class RemoteParts(msgspec.Struct, frozen=True):
    """The dependencies and limits that all servers of a process share.

    - `secrets`: the environment and .env
    - `pause`: sleeps before a retry; tests replace it
    - `jail`: returns the sandbox of a server by its name and settings, or None if it runs with all rights
    - `start_s`: how long a start may take, unless the settings set a limit
    - `wait_s`: how long a session waits for the first start of a server
    - `finish_start`: called with the name of a server that was not ready when the program ended, to start it
      outside of the program
    """

    home: Home
    secrets: Mapping[str, str]
    clock: Clock
    guardian: Guardian
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    jail: Callable[[str, McpServerSettings], ServerJail | None] | None = None
    start_s: float = 30.0
    wait_s: float = WAIT_S
    finish_start: Callable[[str], object] | None = None


class Remote:
    """A configured server. `notify` is called with lines for the person, `on_catalogue` with each new
    catalogue."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        parts: RemoteParts,
        notify: Callable[[str], None],
        on_catalogue: Callable[[Catalogue], None],
    ) -> None:
        self.name = name
        self.settings = settings
        self.connection: Connection | None = None
        self._parts = parts
        self._notify = notify
        self._on_catalogue = on_catalogue
        self._catalogue: Catalogue | None = None
        self._lock = asyncio.Lock()
        self.failures: int = 0
        self._failed_s = 0.0
        self._change_count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def fetch_catalogue(self) -> Catalogue:
        """Connect to the server and return its catalogue. Raises ToolError."""
        await self._connect()
        return self._catalogue or Catalogue()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        progress: Progress | None = None,
        asker: CallPerson | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return its result. `progress` is called with its progress notifications, which also
        extend its time limit; `asker` answers the server's questions. Raises ToolError."""
        params = {"name": tool, "arguments": arguments}
        limit_s = self.settings.timeout_s
        return await self._run_with_retry(
            lambda connection, limit: connection.request(
                "tools/call",
                params,
                extend_limit_on_progress(progress, limit, limit_s),
                suspend_limit_while_asking(asker, limit, limit_s),
            )
        )

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method and return its result. Raises ToolError."""
        return await self._run_with_retry(lambda connection, _: connection.request(method, dict(params)))

    async def list_all(self, method: str, key: str) -> list[object]:
        """Return all pages of the server's list. Raises ToolError."""
        return await self._run_with_retry(lambda connection, _: connection.list_all(method, key))

    async def _run_with_retry(self, operation: Operation[T]) -> T:
        """Run an operation within the server's time limit. Repeats it once if the server had lost the session
        and can't have run it."""
        try:
            return await self._run_once(await self._connect(), operation)
        except SessionLost as error:
            if error.may_have_run:
                raise
            return await self._run_once(await self._connect(), operation)

    async def _run_once(self, connection: Connection, operation: Operation[T]) -> T:
        limit = asyncio.timeout(self.settings.timeout_s)
        try:
            async with limit:
                result = await operation(connection, limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._start_task(self._check_alive(connection))
            failure = timeout_error(self.name, "answer", self.settings.timeout_s)
            unknown = "whether it did what was asked is unknown; its setting is timeout_s"
            failure.hint = "; ".join(filter(None, (connection.transport.explain(), unknown)))
            raise failure from error
        except SessionLost as error:
            if not error.is_certain and await connection.is_alive(PING_S):
                raise ServerFailed(error.message, hint=error.hint or _UNKNOWN) from error
            if self.connection is connection:
                self.connection = None
                self._start_task(self._retire(connection))
            raise
        except ServerFailed as error:
            if error.hint:
                raise
            raise ServerFailed(error.message, hint=_UNKNOWN) from error
        self.failures = 0
        return result

    async def aclose(self) -> None:
        """Release the server."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # one of the tasks may be closing a connection
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.aclose()

    async def _connect(self) -> Connection:
        async with self._lock:
            current = self.connection
            if current is not None:
                if current.failure is None:
                    return current
                await self._drop(current)
            await self._wait_turn()
            connection: Connection | None = None
            try:
                connection = Connection(
                    self.name, _build_transport(self.name, self.settings, self._parts), self._make_listener()
                )
                catalogue = await self._open_connection(connection)
            except BaseException as error:
                if isinstance(error, ToolError):
                    self._count_failure()
                    self._store_failure(error)
                if connection is not None:
                    await asyncio.shield(connection.aclose())
                raise
            self.connection = connection
            self._take_catalogue(catalogue, connection)
            return connection

    async def _open_connection(self, connection: Connection) -> Catalogue:
        set_s = self.settings.start_timeout_s
        limit_s = self._parts.start_s if set_s is None else set_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await connection.open()
                return await _fetch_catalogue(connection)
        except TimeoutError as error:
            if not limit.expired():
                raise
            failure = timeout_error(self.name, "get ready", limit_s)
            failure.hint = connection.transport.explain() or f"whet mcp test {self.name}"
            raise failure from error
        except ServerFailed as error:
            if not error.hint:
                error.hint = connection.transport.explain() or f"whet mcp test {self.name}"
            raise

    async def _wait_turn(self) -> None:
        """Wait until the server may be restarted. Raises ServerFailed if that would take long."""
        if self.failures < 2:
            return
        pause_s = min(_LONGEST_PAUSE_S, 2.0 ** (self.failures - 2))
        left_s = self._failed_s + pause_s - self._parts.clock.monotonic_s()
        if left_s > _WAITED_FOR_S:
            raise ServerFailed(
                f"the MCP server {self.name} has failed {self.failures} times in a row;"
                f" it is not started again for another {left_s:.0f} s",
                hint=f"go on without it; whet mcp test {self.name} shows what is wrong",
            )
        if left_s > 0:
            await self._parts.pause(left_s)

    def _make_listener(self) -> ConnectionListener:
        return ConnectionListener(
            changed=self._handle_change,
            refused=lambda method: self._notify(f"MCP server {self.name} {_REFUSED[method]}"),
            gone=self._handle_end,
        )

    def _handle_end(self, failure: ToolError) -> None:
        self._count_failure()
        message = failure.message[:1].upper() + failure.message[1:]
        self._notify(f"{message}; its tools fail until their next call starts it again")

    def _store_failure(self, error: ToolError) -> None:
        now_ms = self._parts.clock.unix_ms()
        store_failure(self._parts.home, self.name, self.settings, masking.mask(error.message), now_ms)

    def _count_failure(self) -> None:
        self.failures += 1
        self._failed_s = self._parts.clock.monotonic_s()

    async def _check_alive(self, connection: Connection) -> None:
        """Close the connection if the server does not answer a ping."""
        if not await connection.is_alive(PING_S):
            async with self._lock:
                if self.connection is connection:
                    self._handle_end(ServerFailed(f"the MCP server {self.name} does not answer any more"))
                    await self._drop(connection)

    def _handle_change(self) -> None:
        """List the tools again, once for all notifications that arrive meanwhile."""
        self._change_count += 1
        if self._change_count == 1:
            self._start_task(self._list_again())

    async def _list_again(self) -> None:
        try:
            while (connection := self.connection) is not None and connection.failure is None:
                handled_count = self._change_count
                async with asyncio.timeout(self.settings.timeout_s):
                    self._take_catalogue(await _fetch_catalogue(connection), connection)
                await self._parts.pause(_RELIST_PAUSE_S)
                if handled_count == self._change_count:
                    return
        except (ToolError, TimeoutError) as error:
            log.warning("the MCP server %s changed its tools and can't be asked: %s", self.name, error)
        finally:
            self._change_count = 0

    def _take_catalogue(self, catalogue: Catalogue, connection: Connection) -> None:
        if catalogue == self._catalogue:
            return
        self._catalogue = catalogue
        server_name = str(connection.server_info.get("name") or "")[:80]
        now_ms = self._parts.clock.unix_ms()
        digest = config_digest(self.settings)
        listing = KeptListing(
            digest, now_ms, catalogue.tools, catalogue.offers, server_name, connection.version
        )
        write_stored(self._parts.home, self.name, listing)
        self._on_catalogue(catalogue)

    async def _retire(self, connection: Connection) -> None:
        """Close a connection once its pending calls have ended."""
        async with aclosing(connection):
            await connection.wait_for_pending(self.settings.timeout_s)

    async def _drop(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
        await connection.aclose()

    def _start_task(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _build_transport(name: str, settings: McpServerSettings, parts: RemoteParts) -> Transport:
    """Return the transport to a server without starting it. Raises ServerFailed if a variable is not set."""
    if settings.url:
        # httpx2 takes 30 ms of CPU, and many homes have no server with a url.
        from whet.mcp.http import HttpTransport  # noqa: PLC0415

        headers = _fill_all(name, parts.secrets, settings.headers, "headers")
        has_key = not settings.allow_http and any(holds_key(*pair) for pair in settings.headers.items())
        return HttpTransport(name, settings.url, headers, parts, has_key=has_key)
    variables = _fill_all(name, parts.secrets, settings.env, "env")
    cwd = Path(settings.cwd).expanduser() if settings.cwd else None
    launch = Launch(
        os.path.expanduser(settings.command),
        settings.args,
        server_environment(os.environ, variables),
        cwd,
        frozenset(variables),
    )
    find_jail = parts.jail
    jail = None if find_jail is None else lambda: find_jail(name, settings)
    return StdioTransport(name, launch, parts.guardian, jail)


def suspend_limit_while_asking(
    asker: CallPerson | None, limit: asyncio.Timeout, timeout_s: float
) -> CallPerson | None:
    """Return `asker`, with the call's time limit suspended while it asks. Returns None for None."""
    if asker is None:
        return None

    async def ask(question: str, choices: Sequence[str]) -> str | None:
        limit.reschedule(None)
        try:
            return await asker.ask(question, choices)
        finally:
            limit.reschedule(asyncio.get_running_loop().time() + timeout_s)

    return CallPerson(asker.owner, ask)


def extend_limit_on_progress(progress: Progress | None, limit: asyncio.Timeout, timeout_s: float) -> Progress:
    """Return a listener that restarts a call's time limit at each progress notification, but for at most an
    hour in total. It passes notifications on to `progress`."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + max(timeout_s, _LONGEST_CALL_S)

    def extend(params: dict[str, Any]) -> None:
        if limit.when() is not None and not limit.expired():  # no limit while a person is asked
            limit.reschedule(min(loop.time() + timeout_s, end_s))
        if progress is not None:
            progress(params)

    return extend


def _fill_all(
    server: str, secrets: Mapping[str, str], values: Mapping[str, str], setting: str
) -> dict[str, str]:
    filled = {key: fill_variables(value, secrets) for key, value in values.items()}
    for key, value in filled.items():
        if value is None:
            missing = ", ".join(
                match[1]
                for match in _VARIABLE.finditer(values[key])
                if match[2] is None and not secrets.get(match[1])
            )
            raise ServerFailed(
                f"mcp.servers.{server}.{setting}.{key} needs {missing}, which is not set",
                hint=f"whet config set {missing.partition(',')[0]} stores it in .env",
            )
    return {key: value for key, value in filled.items() if value is not None}


def fill_variables(text: str, secrets: Mapping[str, str]) -> str | None:
    """Return the text with each ${NAME} and ${NAME:-default} replaced by the variable, or None if one without
    a default is not set. The values are masked in output from now on."""
    matches = list(_VARIABLE.finditer(text))
    if any(match[2] is None and not secrets.get(match[1]) for match in matches):
        return None
    masking.protect(secrets[match[1]] for match in matches if secrets.get(match[1]))
    return _VARIABLE.sub(lambda match: secrets.get(match[1]) or match[2], text)


def check_server(name: str, settings: McpServerSettings) -> None:
    """Raise ConfigError for an invalid name, or for settings without exactly one of `command` and `url`."""
    if not SERVER_NAME.fullmatch(name):
        raise ConfigError(
            f"mcp.servers: {name[:60]!r} is not a name for a server",
            hint="at most 30 letters, digits, - and single _ between them",
        )
    if bool(settings.command) == bool(settings.url):
        problem = "has neither command nor url" if not settings.url else "has both command and url"
        raise ConfigError(f"mcp.servers.{name} {problem}", hint="command starts a server, url reaches one")


async def _fetch_catalogue(connection: Connection) -> Catalogue:
    try:
        tools = await connection.list_all("tools/list", "tools")
    except RpcFailed as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        tools = []  # a server with only resources or prompts
    has_items = await asyncio.gather(*(_has_items(connection, offer) for offer in connection.offers))
    offers = [offer for offer, is_there in zip(connection.offers, has_items, strict=True) if is_there]
    return Catalogue(sort_tools(tools), tuple(offers))


async def _has_items(connection: Connection, offer: str) -> bool:
    """Return whether the server has any item of an offer. Many servers announce offers without items."""
    for method, key in LISTS[offer]:
        with contextlib.suppress(ToolError, TimeoutError):
            async with asyncio.timeout(_PART_S):
                if await connection.list_all(method, key):
                    return True
    return False


def holds_key(name: str, value: str) -> bool:
    """Return whether a header or variable looks as if it contained a key."""
    return "${" in value or is_secret_name(name.replace("-", "_")) or name.lower() == "authorization"
