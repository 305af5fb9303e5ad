"""What the gateway costs: memory with many conversations, growth over many messages, CPU before the model.

A gateway process of its own is driven through its signed webhook, the channel that needs no vendor's
server; everything behind the channel is the same for all of them. Its memory and CPU are read from /proc; the
practice server and the driver run in this process and don't count.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, clean_environment, median
from benchmarks.table import Row
from whet.confirm.notify.one_way import signed
from whet.practice.ask import Ask
from whet.practice.script import Fault, Reply
from whet.practice.server import PracticeServer

COMMAND = "python -m benchmarks gateway"
_KEY = b"k" * 32
_IDLE, _ACTIVE = 1_000, 200
_PEOPLE = _IDLE + _ACTIVE


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    changed = threading.Condition()

    def do_POST(self) -> None:
        """Count an answer."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        with self.changed:
            _Answers.count += 1
            self.changed.notify_all()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Receiver(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A gateway that was killed hangs up."""


class Driver:
    """A gateway process, and a program that talks to it as many people."""

    def __init__(self, pid: int, port: int, model: PracticeServer) -> None:
        self.pid = pid
        self.model = model
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self._number = 0

    def write(self, person: int, text: str) -> None:
        """Have somebody write; the message is stored on return."""
        self._number += 1
        data = {"conversation": f"c{person}", "user": f"u{person}", "text": text}
        body = json.dumps({"type": "message", "data": data}).encode()
        headers = signed(_KEY, f"m{self._number}", int(time.time()), body)
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        self._connection.request("POST", "/", body, headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != 202:
            raise RuntimeError(f"the gateway answered {answer.status}")

    def answered(self, number: int, timeout_s: float = 600.0) -> None:
        """Wait until so many answers came in all."""
        with _Answers.changed:
            if not _Answers.changed.wait_for(lambda: _Answers.count >= number, timeout_s):
                raise TimeoutError(f"{_Answers.count} of {number} answers came")

    def rss_mb(self) -> float:
        """The process's memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000

    def cpu_ms(self) -> float:
        """The CPU time of all its threads, those that have ended left out."""
        spent = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            spent += int((task / "schedstat").read_text().split()[0])
        return spent / 1e6


def run(runs: int, full: bool) -> list[Row]:
    """Memory with many conversations, growth over many messages, CPU before the model."""
    with _driver() as driver:
        cpu = _cpu(driver, 60 * max(1, min(runs, 5)))
    with _driver() as driver:
        memory = _memory(driver)
    messages = 100_000 if full else 3_000
    with _driver() as driver:
        growth = _growth(driver, messages)
    return [
        Row(
            "gateway-memory",
            f"Gateway: {_IDLE:,} idle and {_ACTIVE} active conversations in one process",
            "≤ 400 MB",
            f"{memory['active']:.0f} MB ({memory['empty']:.0f} MB before the first message, "
            f"{memory['idle']:.0f} MB with all idle)",
            "none measured",
            memory["active"] <= 400,
            COMMAND,
            bars=memory,
            unit="MB",
        ),
        Row(
            "gateway-growth",
            f"Gateway: growth over {messages:,} messages",
            "≤ 20 MB over 100,000",
            f"{growth:+.1f} MB after the first thousand" + ("" if full else "; the goal's 100,000: --full"),
            "none measured",
            full and growth <= 20,  # fewer messages show nothing about the goal
            COMMAND + (" --full" if full else ""),
        ),
        Row(
            "gateway-cpu",
            "Gateway: inbound update to first model request, CPU",
            "p50 ≤ 25 ms",
            f"p50 {median(cpu):.1f} ms, p95 {sorted(cpu)[int(len(cpu) * 0.95)]:.1f} ms",
            "none measured",
            median(cpu) <= 25,
            COMMAND,
            details=[
                f"{len(cpu)} messages of an open conversation, one at a time. Counted: every thread of the"
                " gateway from the signed request until the practice server has the model's."
            ],
        ),
    ]


def _cpu(driver: Driver, messages: int) -> list[float]:
    base = _Answers.count
    for number in range(20):
        driver.write(0, f"warm up {number}")
        driver.answered(base + number + 1)
    spent: list[float] = []
    for number in range(messages):
        asked, before_ms = driver.model.count, driver.cpu_ms()
        driver.write(0, f"question {number}")
        driver.model.wait_for_request(asked + 1, 30)
        spent.append(driver.cpu_ms() - before_ms)
        driver.answered(base + 20 + number + 1)
    return spent


def _memory(driver: Driver) -> dict[str, float]:
    base, sizes = _Answers.count, {"empty": driver.rss_mb()}
    for person in range(_IDLE):
        driver.write(person, "hello")
    driver.answered(base + _IDLE)
    time.sleep(3)  # let them become idle: gateway.idle_after_s is 1
    sizes["idle"] = driver.rss_mb()
    asked = driver.model.count
    for person in range(_IDLE, _PEOPLE):
        driver.write(person, "hold on")
    driver.model.wait_for_request(asked + _ACTIVE, 300)
    driver.model.wait_for_stall(_ACTIVE, 300)
    sizes["active"] = driver.rss_mb()
    return sizes


def _growth(driver: Driver, messages: int) -> float:
    base, settled = _Answers.count, 0.0
    for number in range(messages):
        driver.write(number % _PEOPLE, f"message {number}")
        if number % 100 == 99:
            driver.answered(base + number + 1)
        if number == min(1_000, messages // 3) - 1:
            settled = _at_rest(driver, number + 1 - (number + 1) % 100, base)
    return _at_rest(driver, messages - messages % 100, base) - settled


def _at_rest(driver: Driver, answers: int, base: int) -> float:
    """Give the memory when every conversation is idle and free memory was given back."""
    driver.answered(base + answers)
    time.sleep(35)
    return driver.rss_mb()


def _mind(ask: Ask) -> Reply:
    held = "hold on" in ask.last_user
    return Reply(text="All right.", fault=Fault(stall_after=0) if held else Fault())


@contextmanager
def _driver() -> Iterator[Driver]:
    receiver = _Receiver(("127.0.0.1", 0), _Answers)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with PracticeServer(mind=_mind) as model, tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        home = _home(Path(folder), port, receiver.server_port, model)
        environ = {**clean_environment(), "WHET_HOME": str(home)}
        environ["GATEWAY_WEBHOOK_SECRET"] = "whsec_" + base64.b64encode(_KEY).decode()
        with (Path(folder) / "output").open("wb") as output:
            command = [sys.executable, "-m", "whet", "gateway", "run", "--workspace", folder]
            process = subprocess.Popen(command, env=environ, cwd=ROOT, stdout=output, stderr=output)
        try:
            _wait_for(port, process)
            yield Driver(process.pid, port, model)
        finally:
            process.kill()
            process.wait(30)
            receiver.shutdown()
            receiver.server_close()


def _home(folder: Path, port: int, answers: int, model: PracticeServer) -> Path:
    home = folder / "home"
    home.mkdir()
    people = "".join(f'[people.p{n}]\nwebhook = "u{n}"\n' for n in range(_PEOPLE))
    (home / "gateway.toml").write_text(
        f'[[channel]]\nkind = "webhook"\nlisten = "127.0.0.1:{port}"\n'
        f'url = "http://127.0.0.1:{answers}"\n{people}'
    )
    (home / "config.yaml").write_text(
        f"model:\n  provider: practice\n  base_url: {model.base_url}\n  model: practice\n"
        "gateway:\n  idle_after_s: 1\n  flood_per_minute: 1000000\nreview:\n  worker: 'off'\n"
    )
    return home


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the gateway did not start (exit code {process.poll()}), pid {os.getpid()}")
