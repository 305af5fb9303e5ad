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

import msgspec

from benchmarks.measure import ROOT, clean_environment, median
from benchmarks.recorder import cpu_of, resident_mb
from benchmarks.streaming import FLOOR_MS, floor_ms
from benchmarks.table import Row
from whet.vendors.signing import sign_headers
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks gateway"
_KEY = b"k" * 32
_IDLE, _ACTIVE = 1_000, 200
_PEOPLE = _IDLE + _ACTIVE
_SIDE_BY_SIDE, _IN_A_ROW = 100, 10
_WARM_UP = 2_000
_MESSAGE_GOAL_MS = 3.5
_GOAL_KILLS = 100
_SIDE, _ROUNDS = 20, 5


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
        headers = sign_headers(_KEY, f"m{self._number}", int(time.time()), body)
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
        return resident_mb(self.pid)

    def cpu_ms(self) -> float:
        """The CPU time of all its threads, those that have ended left out."""
        spent = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            spent += int((task / "schedstat").read_text().split()[0])
        return spent / 1e6


def run(runs: int, full: bool) -> list[Row]:
    """Memory with many conversations, growth over many messages, CPU before the model."""
    with _driver() as driver:
        cpu = _first_request_ms(driver, 60 * max(1, min(runs, 5)))
        message_ms = _message_ms(driver, _ROUNDS * max(1, min(runs, 5)))
    with _driver() as driver:
        memory = _memory(driver)
    floor = floor_ms(max(3, runs))
    messages = 100_000 if full else 4_000
    with _driver() as driver:
        growth = _growth(driver, messages)
    grown = growth.after - growth.settled
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
            "gateway-growth" if full else "gateway-growth-short",
            f"Gateway: growth over {messages:,} messages"
            + ("" if full else " (a short look, not the goal's 100,000)"),
            "≤ 10 MB over 100,000",
            f"{grown:+.1f} MB, from {growth.settled:.1f} to {growth.after:.1f} MB",
            "none measured",
            grown <= 10 if full else None,  # fewer messages show nothing about the goal
            COMMAND + (" --full" if full else ""),
            details=[
                f"{messages:,} messages of {_PEOPLE:,} people, {_SIDE_BY_SIDE} conversations side by side,"
                f" {_IN_A_ROW} messages in a row each; a conversation that pauses a second is let go and read"
                " again. Measured from a settled state: all people had written once and"
                f" {_WARM_UP:,} messages more were answered, so that the allocator is warm. Bounded caches"
                " (SQLite's pages, at most 6 MB) count. Both ends at rest. CPU of the gateway, HTTP"
                f" and the store included: {growth.cpu_ms:.1f} ms a message.",
                *([] if full else ["The goal's row is made by --full."]),
            ],
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
        Row(
            "gateway-message",
            "Gateway: a message in and its answer out, CPU",
            f"≤ {_MESSAGE_GOAL_MS} ms where http.client takes {FLOOR_MS} for a burst call:"
            f" ≤ {_MESSAGE_GOAL_MS / FLOOR_MS:.0f} x (4.4 to 6.7 ms before)",
            f"{message_ms:.1f} ms, {message_ms / floor:.1f} x http.client ({floor:.2f} ms)",
            "none measured",
            message_ms <= _MESSAGE_GOAL_MS / FLOOR_MS * floor,
            COMMAND,
            details=[
                f"Messages of {_SIDE} people who write side by side, the model's call included. The gateway"
                " waits .35 s for a forward after a message; one person alone pays for caches that are cold"
                " by then."
            ],
        ),
    ]


def run_kills(runs: int, full: bool) -> list[Row]:
    """Kill gateways under load, at any time and at chosen moments: 100 times each with --full, else 10."""
    from tests.gateway.kills.platforms import PLATFORMS
    from tests.gateway.kills.rounds import survive

    rows: list[Row] = []
    for platform in PLATFORMS:
        with tempfile.TemporaryDirectory() as folder:
            tally = survive(Path(folder) / "home", platform, "queue", _GOAL_KILLS if full else 10)
        rows.append(
            Row(
                f"gateway-kills-{platform}" + ("" if full else "-short"),
                f"Gateway on {platform}: 20 conversations under SIGKILLs, 429s, 5xx, cut connections"
                + ("" if full else f" (a short look, not the goal's {_GOAL_KILLS} kills)"),
                f"0 lost, 0 duplicated, 0 reordered in {_GOAL_KILLS} kills",
                f"{tally.kills} kills, {tally.accepted} accepted, {tally.lost} lost, {tally.duplicated} "
                f"duplicated, {tally.reordered} reordered, {tally.unknown} sends marked as unknown",
                "none measured",
                judge_kills(tally.kills, is_clean=tally.is_clean),
                "python -m benchmarks gateway-kills" + (" --full" if full else ""),
                details=[
                    ", ".join(f"{times} at {moment}" for moment, times in tally.moments.items()),
                    *tally.wrong,
                ],
            )
        )
    return rows


def judge_kills(kills: int, *, is_clean: bool) -> bool | None:
    """Return whether the goal is met. Clean rounds of fewer kills than the goal's decide nothing; a message
    that is lost, doubled or out of order always does."""
    return None if is_clean and kills < _GOAL_KILLS else is_clean


def _first_request_ms(driver: Driver, messages: int) -> list[float]:
    """Return what each message of one person costs until the model is asked."""
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


def _message_ms(driver: Driver, rounds: int) -> float:
    """Return what a message and its answer cost, of people who write side by side."""
    for number in range(-3, rounds):
        if not number:
            began_ms = driver.cpu_ms()
        base = _Answers.count
        for person in range(_SIDE):
            driver.write(person, f"question {number}")
        driver.answered(base + _SIDE)
    return (driver.cpu_ms() - began_ms) / (rounds * _SIDE)


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


class Growth(msgspec.Struct, frozen=True):
    """The gateway's memory at rest, in megabytes: settled, and after the messages. `cpu_ms`: per message."""

    settled: float
    after: float
    cpu_ms: float


def _growth(driver: Driver, messages: int) -> Growth:
    """Settle, then count what `messages` more add.

    Settled: everybody has written, and the allocator has seen the load that is to come, bounded caches that
    fill later count as growth. At rest: every conversation idle, free memory given back.
    """
    _converse(driver, _PEOPLE, in_a_row=1)
    _converse(driver, _WARM_UP)
    settled = _at_rest(driver)
    before_s = cpu_of(driver.pid)
    _converse(driver, messages)
    spent_s = cpu_of(driver.pid) - before_s
    return Growth(settled, _at_rest(driver), 1000 * spent_s / messages)


def _converse(driver: Driver, messages: int, in_a_row: int = _IN_A_ROW) -> None:
    """Have groups of people write, each several messages one after the other, until so many were answered.

    A group is done before the next one begins. So conversations are opened and let go all the time, and much
    goes on side by side, but nobody writes before their last message was answered.
    """
    base, written, group = _Answers.count, 0, 0
    while written < messages:
        people = [(group * _SIDE_BY_SIDE + number) % _PEOPLE for number in range(_SIDE_BY_SIDE)]
        for turn in range(in_a_row):
            for person in people[: messages - written]:
                driver.answered(base + written - _SIDE_BY_SIDE + 1)
                driver.write(person, f"message {turn} of {group}")
                written += 1
        driver.answered(base + written)
        driver.model.reset()  # it keeps every request that it gets
        group += 1
        if written // 5_000 > (written - in_a_row * _SIDE_BY_SIDE) // 5_000:
            print(f"  {written:,} of {messages:,}, {driver.rss_mb():.0f} MB", file=sys.stderr, flush=True)


def _at_rest(driver: Driver) -> float:
    """Give the memory when every conversation is idle and free memory was given back, every 30 s."""
    time.sleep(35)
    return driver.rss_mb()


def _mind(ask: PracticeRequest) -> ScriptedReply:
    held = "hold on" in ask.last_user
    return ScriptedReply(text="All right.", fault=Fault(stall_after=0) if held else Fault())


@contextmanager
def _driver() -> Iterator[Driver]:
    receiver = _Receiver(("127.0.0.1", 0), _Answers)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with PracticeServer(responder=_mind) as model, tempfile.TemporaryDirectory() as folder:
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
        "gateway:\n  idle_after_s: 1\n  busy: queue\n  flood_per_minute: 1000000\nreview:\n  worker: 'off'\n"
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
