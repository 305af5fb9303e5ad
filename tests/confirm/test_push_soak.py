"""Kills of the service, the push service, the chat, the agent and the device: every request is decided or has
a reason why not, nothing is lost or doubled, and what was approved is what runs.

    SOAK_KILLS=1000 pytest -m soak tests/confirm/test_push_soak.py -s -o timeout=0
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.confirm.process import Served
from tests.confirm.running import field_of
from tests.confirm.vendors.push import PushServer, acknowledge, press
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from tests.support import quiet_port

_LEASE_S = 60  # a message that a killed service was sending is sent again after this
_TIMEOUT_S = 150
_GONE = (httpx2.HTTPError, OSError)
_TO_USE = "status = 'approved' AND description NOT LIKE 'program-%'"  # those programs have been killed
_ASKING_PROGRAM = Path(__file__).with_name("asking_program.py")


class World:
    """A service, a push service, a chat, agents that ask, and a person who answers, until `is_over`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.url = f"http://127.0.0.1:{quiet_port()}"
        options = ("--web-port", self.url.rpartition(":")[2], "--allow-private-callbacks")
        self.served = Served(folder, *options, "--rate-limit", "1000000", "--max-pending", "1000000")
        self.push, self.chat = PushServer(), TelegramServer()
        self.push.port, self.chat.port = quiet_port(), quiet_port()  # they start again there
        self.has_asked_enough, self.is_over = threading.Event(), threading.Event()
        self.asked: dict[str, str] = {}  # the request of each Idempotency-Key
        self.lost: set[str] = set()  # messages that died with the device before it showed them
        self.pressed: dict[str, str] = {}  # what a press that was answered decided
        self.versions: dict[str, str] = {}  # the version that the pressed message showed
        self.stale = 0  # presses on a message whose request had changed
        self.consumed: Counter[str] = Counter()
        self.wrong_uses = 0  # uses of an approval for something else, all of which were refused
        self.kills: Counter[str] = Counter()
        self.must_abort = threading.Event()
        self.must_lose = threading.Event()

    def write_channels(self) -> None:
        """The chat gets what no device has shown within five seconds."""
        file = self.served.home / "confirm" / "channels.toml"
        file.parent.mkdir(parents=True)
        file.write_text(
            "[people.owner]\ntelegram = 7\n"
            f'[[channel]]\nkind = "telegram"\nchat = -1001\nafter_s = 5\nbase_url = "{self.chat.url}"\n'
        )

    def subscribe(self) -> None:
        self.editor = self.served.make_admin()
        self.page = httpx2.Client(base_url=self.url, headers={"origin": self.url}, timeout=20)
        assert self.page.post("/login", data={"token": self.served.token("approve")}).status_code == 303
        text = self.page.get("/devices").text
        self.phone = self.push.subscribe(re.search(r'data-key="([^"]+)"', text)[1])  # type: ignore[index]
        subscription = json.dumps(self.phone.subscription)
        form = {"csrf": field_of(text, "csrf"), "do": "add", "subscription": subscription}
        assert self.page.post("/devices", data=form).status_code == 303

    def run_agent(self) -> None:
        """Ask again and again; if an answer does not come, ask again with the same key. Some requests are
        changed by another person right away."""
        dice, number = random.Random(1), 0
        while not self.has_asked_enough.is_set():
            number += 1
            body = {
                "action": "restart",
                "description": f"Number {number}",
                "details": {"version": "one"},
                "accepts_edits": True,
                "timeout_seconds": _TIMEOUT_S,
            }
            key, digest = f"key-{number}", ""
            while key not in self.asked:
                headers = {"idempotency-key": key}
                with contextlib.suppress(*_GONE):
                    answer = self._send("POST", "/confirm", body, headers=headers)
                    if self.must_abort.is_set():  # the agent dies before it reads the answer
                        self.must_abort.clear()
                    elif answer.status_code == 202:
                        self.asked[key], digest = answer.json()["id"], answer.json()["digest"]
            if dice.random() < 0.2:
                change = {"details": {"version": "two"}, "digest": digest}
                self.has_asked_enough.wait(dice.random() / 5)
                with contextlib.suppress(*_GONE):
                    self._send("POST", f"/confirm/{self.asked[key]}/amend", change, token=self.editor)
            self.has_asked_enough.wait(0.1)

    def run_user(self) -> None:
        """Use approvals: first for something else, then for what was approved."""
        sql = f"SELECT id, digest FROM requests WHERE {_TO_USE}"
        while not self.is_over.is_set():
            for request, digest in rows(self, sql):
                if request in self.consumed:
                    continue  # an answer that did not come is asked for again with the same key
                with contextlib.suppress(*_GONE):
                    refused = self._send("POST", f"/confirm/{request}/consume", {"digest": "0" * 64})
                    assert refused.status_code == 409, refused.text
                    self.wrong_uses += 1
                    headers = {"idempotency-key": f"use-{request}"}
                    path = f"/confirm/{request}/consume"
                    used = self._send("POST", path, {"digest": digest}, headers=headers)
                    assert used.status_code == 200, used.text
                    self.consumed[request] += 1
            self.is_over.wait(0.3)

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any],
        *,
        token: str = "",
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        bearer = {"authorization": f"Bearer {token or self.served.token('submit')}"}
        with httpx2.Client(base_url=self.url, timeout=20) as client:
            return client.request(method, path, json=body, headers=bearer | (headers or {}))

    def run_phone(self) -> None:
        """Show each message, say so, and press a button of most."""
        seen: set[tuple[str, str]] = set()
        acknowledged: set[str] = set()
        position = 0
        while not self.is_over.is_set() or position < len(self.phone.messages):
            if position >= len(self.phone.messages):
                self.is_over.wait(0.02)
                continue
            message = self.phone.messages[position]
            position += 1
            request, version = message["request"], version_of(message)
            if not message.get("is_open") or (request, version) in seen or request in self.lost:
                continue
            if self.must_lose.is_set() and request not in acknowledged:
                self.must_lose.clear()
                self.lost.add(request)
                continue
            seen.add((request, version))
            if request not in acknowledged:
                acknowledged.add(request)
                _insist(functools.partial(self._acknowledge, message))
            is_program = "program-" in message["body"]  # which is killed: leave half of those to nobody
            if self.dice.random() < (0.5 if is_program else 0.9) and request not in self.pressed:
                self._press(message)

    def run_chat(self) -> None:
        """Press a button of most messages in the chat."""
        done: set[str] = set()
        dice = random.Random(2)
        while not self.is_over.is_set():
            for number, message in list(self.chat.messages.items()):
                rows_of = message["reply_markup"]["inline_keyboard"]
                texts = [button["text"] for row in rows_of for button in row]
                request = re.search(r"\b[\w-]{22}\b", message["text"])
                is_program = "program-" in message["text"]
                if "✓ Approve" in texts and request and request[0] not in done and not is_program:
                    done.add(request[0])
                    if dice.random() < 0.7:
                        self.chat.press(number, dice.choice(("Approve", "Deny")))
            self.is_over.wait(0.2)

    def _acknowledge(self, message: dict[str, Any]) -> bool:
        return acknowledge(self.page, message) == 204

    def _press(self, message: dict[str, Any]) -> None:
        action = self.dice.choice(("approve", "deny"))

        def try_once() -> bool:
            answer = press(self.page, message, action)
            if answer.status_code == 409:
                self.stale += 1
            elif answer.status_code == 200:
                self.pressed[message["request"]] = answer.json()["text"]
                self.versions[message["request"]] = version_of(message)
            return answer.status_code in (200, 409)

        _insist(try_once)

    def kill(self) -> None:
        what = self.dice.choice(("service", "service", "push service", "chat", "agent", "agent", "device"))
        self.kills[what] += 1
        if what == "service":
            self.served.kill()
            self.served.start()
        elif what in ("push service", "chat"):
            server = self.chat if what == "chat" else self.push
            server.__exit__()
            time.sleep(self.dice.random() / 4)
            server.__enter__()
        elif what == "agent" and self.dice.random() < 0.5:
            self.must_abort.set()
        elif what == "agent":
            self._kill_program()
        else:
            self.must_lose.set()
        time.sleep(self.dice.random() / 2)

    def _kill_program(self) -> None:
        """Kill a program that has asked and waits: nobody would run what is approved then."""
        key = f"program-{self.kills['agent']}"
        command = [sys.executable, "-S", str(_ASKING_PROGRAM), self.url, self.served.token("submit"), key]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            request = program.stdout.readline().strip()
            assert request, "the program could not ask"
            self.asked[key] = request
            time.sleep(self.dice.random() / 5)
            program.send_signal(signal.SIGKILL)


def version_of(message: dict[str, Any]) -> str:
    return "two" if "two" in message.get("body", "") else "one"


def _insist(call: Callable[[], bool]) -> None:
    """Call until it returns True; the service may be down."""
    for _ in range(2_000):
        with contextlib.suppress(*_GONE):
            if call():
                return
        time.sleep(0.05)
    raise TimeoutError("the service did not come back")


def play(folder: Path, kills: int, seed: int = 43) -> None:
    world = World(folder, seed)
    with world.push, world.chat:
        world.write_channels()
        with world.served:
            world.subscribe()
            runs = world.run_agent, world.run_phone, world.run_chat, world.run_user
            threads = [threading.Thread(target=run, daemon=True) for run in runs]
            for thread in threads:
                thread.start()
            for _ in range(kills):
                world.kill()
            world.has_asked_enough.set()
            threads[0].join(60)
            settle(world)
            world.is_over.set()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            metrics = world.served.call("GET", "/metrics")[1]["text"]
            check(world, metrics)
            world.page.close()
            assert world.served.terminate() == 0


def settle(world: World) -> None:
    """Wait until the last request has ended and its last message was sent again after a kill."""
    deadline = time.monotonic() + _TIMEOUT_S + _LEASE_S + 30
    sql = (
        "SELECT (SELECT count(*) FROM deliveries WHERE status IN ('queued', 'failed'))"
        " + (SELECT count(*) FROM requests WHERE status = 'pending')"
        f" + (SELECT count(*) FROM requests WHERE {_TO_USE} AND consumed_at IS NULL)"
    )
    world.is_over.wait(2)
    while time.monotonic() < deadline and rows(world, sql) != [(0,)]:
        world.is_over.wait(0.5)


def rows(world: World, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(
        sqlite3.connect(f"file:{world.served.home / 'confirmations.db'}?mode=ro", uri=True)
    ) as database:
        return database.execute(sql).fetchall()


def reason_of(row: tuple[Any, ...]) -> str:
    """Why a request was not decided, as its record says it."""
    status, reason, was_sent = row
    if status == "cancelled":
        return "its agent has gone" if "agent has gone" in reason else ""
    return ("nobody answered" if was_sent else "nobody was reached") if status == "expired" else ""


def check(world: World, metrics: str) -> None:
    sent_sql = "SELECT 1 FROM deliveries d WHERE request_id = r.id AND d.status = 'sent' AND channel <> 'log'"
    stored = rows(world, f"SELECT id, status, details, digest, reason, EXISTS ({sent_sql}) FROM requests r")
    requests = {row[0]: row[1] for row in stored}
    versions = {row[0]: json.loads(row[2])["version"] for row in stored}
    events = {
        kind: rows(world, f"SELECT request_id, data FROM events WHERE kind = '{kind}'")
        for kind in ("decided", "consumed")
    }
    decided, used = (Counter(row[0] for row in events[kind]) for kind in ("decided", "consumed"))
    open_rows = [row for row in stored if row[1] not in ("approved", "denied")]
    undecided = {row[0]: reason_of((row[1], row[4], row[5])) for row in open_rows}
    receipts = {row[0] for row in rows(world, "SELECT request_id FROM receipts")}
    unknown = rows(world, "SELECT id FROM requests WHERE id NOT IN (SELECT request_id FROM deliveries)")
    shown = {message["request"] for message in world.phone.messages if message.get("is_open")}
    approved = {name for name, status in requests.items() if status == "approved"}
    by_push = {name for name in approved if f"was {requests[name]}" in world.pressed.get(name, "")}
    changed = {name for name in by_push if world.versions[name] != versions[name]}
    digests = {row[0]: row[3] for row in stored}
    pairs = [pair for rows_ in events.values() for pair in rows_]
    foreign = {name for name, data in pairs if json.loads(data)["digest"] != digests[name]}
    kinds = ", ".join(f"{count} {name}" for name, count in world.kills.items())
    reasons = ", ".join(f"{count} {name}" for name, count in Counter(undecided.values()).items())
    print(
        f"\n{sum(world.kills.values())} kills ({kinds}): {len(requests)} made = {len(decided)} decided"
        f" + {len(undecided)} undecided ({reasons});"
        f"\n  {len(approved)} approved, {len(used)} used once, {len(changed | foreign)} after it changed"
        f" ({world.stale} presses on an older version, {world.wrong_uses} uses for another action: refused);"
        f"\n  {len(set(requests) - receipts)} shown by no device and known;"
        f" {sum(decided.values()) - len(decided)} doubled, {len(unknown)} without a delivery state"
    )
    assert set(world.asked.values()) <= set(requests)
    assert len(requests) <= len(world.asked) + 1, "a request that was sent again is the same request"
    assert set(requests) == set(decided) | set(undecided) and not set(decided) & set(undecided)
    assert all(undecided.values()), "each has a reason"
    assert not unknown, "what happened to each message is known"
    assert not world.lost & receipts and not receipts - shown, "what was not shown was not acknowledged"
    assert max(decided.values()) == 1 and max(used.values()) == 1
    assert not changed and not foreign, "what was decided and used is what was shown"
    assert set(used) == set(world.consumed) and max(world.consumed.values()) == 1
    for name, text in world.pressed.items():
        assert requests[name] not in ("approved", "denied") or f"was {requests[name]}" in text, (name, text)
    assert "whet_confirm_unacknowledged_requests 0\n" in metrics


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_kills_lose_and_double_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    play(tmp_path, int(os.environ.get("SOAK_KILLS", "100")), seed=int(os.environ.get("SOAK_SEED", "1")))
