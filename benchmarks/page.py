"""The web page: what the first token costs between the model and the page, and how long 1,000 messages take.

The server is `whet serve --web` in a process of its own; its model stalls before its first word. Measured is
the CPU of that process from there until the page's stream has the word. The browser's part is Chromium's own
count of its main thread, where there is one.
"""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path

import httpx2
from tests.browser.chromium import PROGRAM, Browser

from benchmarks.measure import median
from benchmarks.serving import Serving, serving
from benchmarks.table import Row
from whet.clock import SystemClock
from whet.contract.messages import Message, ToolCall
from whet.store import bulk, sessions
from whet.store.bulk import PastMessage
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

COMMAND = "python -m benchmarks page"
_ANSWER = (
    "Done. **It passes** now:\n\n- `price.py` rounds\n\n```python\ndef f(x):\n    return x\n```\n\nShall I?"
)


def run(runs: int, full: bool) -> list[Row]:
    """CPU of the first token, and of rendering 1,000 messages."""
    with (
        PracticeServer() as model,
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), model.base_url, "--web") as server,
    ):
        with httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            client.post("/login", data={"token": server.token}, headers={"origin": server.url})
            client.headers["origin"] = server.url
            each = [_first_token(client, model, server) for _ in range(40 if full else 20)]
        took = _rendered(Path(folder), server, max(3, min(runs, 7))) if PROGRAM else []
    first_ms = sum(each) / len(each)
    rows = [
        Row(
            "page-first-token",
            "web page: CPU from the model's first word to the page's stream",
            "≤ 50 CPU ms",
            f"{first_ms:.1f} ms (mean of {len(each)})",
            "none",
            first_ms <= 50,
            COMMAND,
            details=[
                "The server's process, in ticks of 10 ms; other work of the turn in that time is in it."
            ],
        )
    ]
    if took:
        rows.append(
            Row(
                "page-thousand",
                "web page: 1,000 messages in the browser",
                "≤ 200 ms of browser time",
                f"{median(took):.0f} ms ({min(took):.0f} to {max(took):.0f})",
                "none",
                median(took) <= 200,
                COMMAND,
                details=[
                    "Chromium's main thread from the click to the loaded page: parse, style, layout, script."
                ],
            )
        )
    return rows


def _first_token(client: httpx2.Client, model: PracticeServer, server: Serving) -> float:
    """Have a turn stall before its first word, let it go, and give the CPU ms until the stream has it."""
    model.reset()
    model.install([ScriptedReply("Word by word", pieces=3, fault=Fault(stall_after=1, delay_s=0.05))])
    csrf = re.search(r'name="csrf" value="([^"]+)"', client.get("/").text)
    assert csrf is not None
    page = client.post("/sessions", data={"csrf": csrf[1], "text": "hello"}).headers["location"]
    come, open_ = threading.Event(), threading.Event()

    def listen() -> None:
        with client.stream("GET", f"{page.partition('#')[0]}/follow") as answer:
            for line in answer.iter_lines():
                open_.set()
                if line == "event: text":
                    come.set()
                    return

    model.wait_for_stall()
    thread = threading.Thread(target=listen)
    thread.start()
    open_.wait(30)
    before_s = server.cpu_s()
    model.release()
    come.wait(30)
    spent = server.cpu_s() - before_s
    thread.join(30)
    return spent * 1000


def _rendered(folder: Path, server: Serving, times: int) -> list[float]:
    """Give the main thread's ms of opening a session of 1,000 messages."""
    session_id = _thousand(folder)
    browser, found = Browser(folder), list[float]()
    try:
        with browser.page() as page:
            page.open(server.url)
            page.click("#token")
            page.type(server.token)
            with page.loading():
                page.key("Enter")
            page.call("Performance.enable", timeDomain="threadTicks")
            for _ in range(times):
                page.open("about:blank")
                page.open(f"{server.url}/sessions/{session_id}?n=1000")
                assert page.eval("document.querySelectorAll('.said').length") == 1000
                told = page.call("Performance.getMetrics")["metrics"]
                found.append(next(one["value"] for one in told if one["name"] == "TaskDuration") * 1000)
    finally:
        browser.close()
    return found


def _thousand(folder: Path) -> str:
    said: list[PastMessage] = []
    for number in range(250):
        at_ms = 1_790_000_000_000 + number * 1000
        call = ToolCall(id=f"c{number}", name="terminal", arguments='{"command":"make test"}')
        result = Message(role="tool", content="line\n" * 30, tool_call_id=call.id, tool_name="terminal")
        said += [
            PastMessage(
                Message(role="user", content=f"question {number}: why is it slow on Tuesdays?"), at_ms
            ),
            PastMessage(Message(role="assistant", content="I look.", tool_calls=(call,)), at_ms + 1),
            PastMessage(result, at_ms + 2),
            PastMessage(Message(role="assistant", content=_ANSWER), at_ms + 3),
        ]
    database = StateDatabase.open(folder / "home" / "state.db", SystemClock())
    try:
        new = NewSession("thousand", title="A thousand")
        database.write_now(lambda db: sessions.create(db, new, "2026-11-23T00:00:00.000Z"))
        database.write_now(lambda db: bulk.prepend_messages(db, "thousand", said))
    finally:
        database.close()
    return "thousand"
