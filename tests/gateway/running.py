"""A gateway as a process of its own, against vendors' servers next to the test."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from tests.confirm.vendors.discord import TOKEN as DISCORD_TOKEN
from tests.confirm.vendors.slack import APP_TOKEN, BOT_TOKEN
from tests.confirm.vendors.telegram import TOKEN
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.cli.group import run
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.gateway.chat import ChatCommands
from whet.gateway.lock import TokenLock
from whet.gateway.server import GatewayServer
from whet.gateway.settings import open_channels, read_gateway
from whet_lab.practice.server import PracticeServer

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
TELEGRAM = """\
[[channel]]
kind = "telegram"
base_url = "{url}"

[people.ann]
telegram = 7
owner = true
"""


class GatewayProcess:
    """`whet gateway run` in a home; start, kill and stop it as often as you like."""

    def __init__(self, home: Path, file: str, model: PracticeServer, **settings: object) -> None:
        self.home = home
        self.work = home / "work"
        home.mkdir(parents=True, exist_ok=True)
        (home / "gateway.toml").write_text(file)
        mode = settings.pop("mode", "auto")
        settings.setdefault("stream_after_s", 0)
        (home / "config.yaml").write_text(
            f"model:\n  provider: practice\n  base_url: {model.base_url}\n  model: practice\n"
            f"approval:\n  mode: {mode}\ngateway:\n"
            + "".join(f"  {name}: {value}\n" for name, value in settings.items())
        )
        self.model = model
        self.process: subprocess.Popen[bytes] | None = None

    def environ(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "WHET_HOME": str(self.home),
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "DISCORD_BOT_TOKEN": DISCORD_TOKEN,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "GATEWAY_WEBHOOK_SECRET": SECRET,
        }

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        self.work.mkdir(exist_ok=True)
        log = (self.home / "output").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "whet", "gateway", "run", "--workspace", str(self.work)],
            env={**self.environ(), **more},
            stdout=log,
            stderr=log,
            cwd=self.home,
            start_new_session=True,
        )
        log.close()
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def whet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that does not serve, in this process: a start costs more than all that it does."""
        out, err, wanted = io.StringIO(), io.StringIO(), self.environ()
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = run(list(arguments))
        finally:  # name by name: a gateway's thread beside this one reads them too
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                elif value != wanted[name]:
                    os.environ[name] = value
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def whet_apart(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "whet", *arguments],
            env=dict(self.environ()),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def output(self) -> str:
        return (self.home / "output").read_text()


@contextmanager
def running(process: GatewayProcess) -> Iterator[GatewayProcess]:
    """Start a gateway, and kill it at the end whatever happens."""
    process.start()
    try:
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.kill()


@asynccontextmanager
async def opened(gateway: GatewayProcess) -> AsyncIterator[GatewayServer]:
    """Open the same home in this process, with nothing running yet."""
    home = Home(gateway.home)
    text = read_gateway(home.gateway)
    secrets = load_secrets(home, gateway.environ())
    settings = load(home, {}, environ=gateway.environ()).settings
    people = PersonRouter()
    work = gateway.work
    work.mkdir(exist_ok=True)
    seats = open_channels(text, secrets)
    locks = [
        TokenLock.take(home.root / "gateway", seat.channel.name, seat.secrets)
        for seat in seats
        if seat.secrets
    ]
    app = await App.start(home, settings, secrets, people, work, source="gateway")
    limits = settings.gateway
    hosted = SessionHost(app.sessions, people, idle_after_s=limits.idle_after_s, max_turns=limits.max_turns)
    try:
        yield GatewayServer(hosted, seats, text, print, secrets)
    finally:
        await hosted.aclose()
        await app.aclose()
        for lock in locks:
            lock.release()


@contextmanager
def served(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """Serve the same home in a thread of this process: starts at once, and can't be killed."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        async with opened(gateway) as server:
            stop = asyncio.Event()
            started.set_result((asyncio.get_running_loop(), stop))
            await server.run(ChatCommands(SLASH_COMMANDS), stop)

    def serve() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    loop, stop = started.result(20)
    try:
        yield gateway
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive(), "the gateway did not end"
