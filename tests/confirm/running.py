"""A confirmation service on a thread of its own, spoken to over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import apsw
import httpx2

from whet_confirm import tokens
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.peers import Peers
from whet_confirm.records import ConfirmRequest
from whet_confirm.serve import ListenSettings, serve
from whet_confirm.service import CallerLimits
from whet_confirm.timeline import Timeline

T = TypeVar("T")
# Each client would make one, which takes longer than a request.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
SUBMIT = {"action": "deploy", "description": "Deploy 1.4.2", "details": {"version": "1.4.2"}}


class ManualClock:
    """A wall clock and an elapsed-time clock that move only when told to."""

    def __init__(self) -> None:
        self.wall_s = 1_790_000_000.0
        self.elapsed_s = 100.0

    def timeline(self, floor_s: float = 0.0) -> Timeline:
        return Timeline(floor_s, wall=lambda: self.wall_s, elapsed=lambda: self.elapsed_s)

    def pass_by(self, seconds: float) -> None:
        self.wall_s += seconds
        self.elapsed_s += seconds


class Running:
    """A service in `folder`; `policy` is a file or its text, `clock` stands in for the machine's, `more`
    is of its settings. Use as a context manager."""

    people: dict[str, httpx2.Client]
    agent: httpx2.Client
    provider: Any  # of identities, where a test has one

    def __init__(
        self,
        folder: Path,
        *,
        rate: int = 10,
        policy: Path | str | None = None,
        is_open: bool = False,
        clock: ManualClock | None = None,
        upkeep: bool = True,
        private_callbacks: bool = False,
        pending: int = 0,
        socket: Path | None = None,
        peers: Peers | None = None,
        **more: Any,
    ) -> None:
        self.paths = ServicePaths(folder / "confirmations.db", folder / "confirm")
        if isinstance(policy, str):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "policy.toml").write_text(policy)
            policy = folder / "policy.toml"
        self.service = open_service(self.paths, policy=policy, limits=CallerLimits(rate, pending))
        if clock is not None:
            self.service.timeline = clock.timeline(self.service.timeline.now_s() if clock.wall_s < 0 else 0.0)
        self.settings = ListenSettings(
            port=0,
            web_port=0,
            is_open=is_open,
            allow_private_callbacks=private_callbacks,
            socket=socket,
            peers=peers or {},
            **more,
        )
        self._upkeep = upkeep
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = self.page_port = 0
        self.clients: list[httpx2.Client] = []

    def token(self, role: str, name: str) -> str:
        """Make a token, before or while it runs."""

        def make(db: Any) -> str:
            tx = Tx(db, self.service.timeline.now_s(), self.service.key)
            return tokens.create(tx, name, role, by="test")[1]

        return self.service.database.write_now(make)

    def client(self, role: str = "", name: str = "") -> httpx2.Client:
        """A client with a token of `role` for the principal `name` (else the role's name); none for ""."""
        headers = {"authorization": f"Bearer {self.token(role, name or role)}"} if role else {}
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=20, verify=_NO_TLS)
        self.clients.append(client)
        return client

    def page(self, cookie: str = "") -> Any:
        """A browser in front of the pages."""
        client = self.client()
        client.base_url = f"http://127.0.0.1:{self.page_port}"
        client.headers["origin"] = str(client.base_url).rstrip("/")
        if cookie:
            client.headers["cookie"] = cookie
        return client

    def signed_in(self, name: str, role: str = "approve") -> Any:
        """A browser whose person has signed in with a token."""
        found = self.page()
        assert found.post("/login", data={"token": self.token(role, name)}).status_code == 303
        return found

    def loop_cpu_s(self) -> float:
        """The CPU time that its loop has taken: what is done on another thread is not in it."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def run(self, coroutine: Any) -> Any:
        """Run a call of the service on its loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def raw(self, data: bytes, *, wait_s: float = 30.0) -> bytes:
        """Send bytes and give everything that comes back until the server closes.

        One that answers and closes before it has read all of them resets the connection behind its answer.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait_s) as sock:
            parts: list[bytes] = []
            try:
                sock.sendall(data)
                while part := sock.recv(65_536):
                    parts.append(part)
            except ConnectionError:
                if not parts:
                    raise
            return b"".join(parts)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def access(self, role: str, name: str) -> dict[str, str]:
        """What a program with a token of its own has in its environment."""
        return {"WHET_CONFIRM_URL": self.url, "CONFIRMATION_TOKEN": self.token(role, name)}

    def change(self, work: Callable[[Tx], Any]) -> Any:
        return self.run(self.service.change(work))

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        return self.service.database.read_now(work)

    def rows(self, sql: str, *values: apsw.SQLiteValue) -> list[tuple[Any, ...]]:
        return self.read(lambda db: db.execute(sql, values).fetchall())

    def write(self, sql: str, *values: apsw.SQLiteValue) -> None:
        """Change rows as the service does it."""
        self.service.database.write_now(lambda db: db.execute(sql, values).fetchall())

    def kinds(self, request_id: str) -> list[str]:
        """What the log has of a request."""
        return [event.kind for event in self.service.log.history(request_id=request_id)]

    def stored(self, request_id: str) -> ConfirmRequest:
        confirm_request = self.service.get(request_id)
        assert confirm_request is not None
        return confirm_request

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._ready.wait(20), "the service did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.close()
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(120)
        assert not self._thread.is_alive()
        self.service.database.close()

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            await self._serve()

        asyncio.run(main())

    async def _serve(self) -> None:
        def ready(ports: Any) -> None:
            self.port, self.page_port = ports[0], ports[-1]
            self._ready.set()

        beside = None if self._upkeep else []
        await serve(self.service, self.paths, self.settings, ready, stop=self._stop, background=beside)


def outside(paths: ServicePaths) -> apsw.Connection:
    """A connection that is not the service's, through the same SQLite library: another one in this process
    would drop the service's locks when it closes the file."""
    connection = apsw.Connection(str(paths.database))
    connection.set_busy_timeout(30_000)
    return connection


def field_of(page: str, name: str) -> str:
    match = re.search(rf'name="{name}" value="([^"]+)"', page)
    assert match is not None, page
    return match[1]


def alter(database: Path, sql: str, values: Sequence[Any] = ()) -> None:
    """Change a database file as somebody who has no key does."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(sql, values)


def touch(paths: ServicePaths, sql: str, *values: apsw.SQLiteValue) -> None:
    """Change the database behind the service's back."""
    writer = outside(paths)
    writer.execute(sql, values)
    writer.close()


def request(port: int, method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answered(raw: bytes) -> tuple[int, Any]:
    head, _, rest = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(rest) if rest.strip().startswith((b"{", b"[")) else rest
