"""Record the conversations of the gateway's pages.

A person on each platform, the gateway, a server that speaks the platform's protocol, and the practice model's
scripted stand-in.

    PYTHONPATH=src:. python docs/conversations.py          writes them into docs/gateway-*.md
    PYTHONPATH=src:. python docs/conversations.py --check  exit code 1 where one is stale

The gateway's file is the one that the page begins with, with the local server's address and the person added.
When it writes, the gateway is `whet gateway run`; --check serves the same in this process. Nothing is
shortened; names and times that are new in every run are put in a fixed form.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.agent.rig import calls
from tests.confirm.vendors.discord_chat import DiscordChat
from tests.confirm.vendors.slack_chat import SlackChat
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import GatewayProcess, running, served
from tests.gateway.webhook_chat import WebhookChat
from tests.support import quiet_port

from whet.vendors.signing import sign_headers
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

DOCS = Path(__file__).parent
ASK, ANSWER = "clear the build folder", "The **build** folder is gone."
_BEGIN, _END = "<!-- recorded by docs/conversations.py -->\n", "<!-- end -->\n"
_OWNER = '\n[people.ann]\n{kind} = "{user}"\nowner = true\n'
_NARROW = 92


class Record:
    """The lines of a conversation as a page shows them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, who: str, text: str) -> None:
        """Add what somebody said or did."""
        rows = [
            row
            for line in text.split("\n")
            for row in textwrap.wrap(line, _NARROW, break_on_hyphens=False) or [""]
        ]
        self.lines += [
            f"    {who if number == 0 else '':<6}{row}".rstrip() for number, row in enumerate(rows)
        ]


class Seen:
    """A chat as a person sees it: the texts from the bot with their buttons, in order."""

    def __init__(self, vendor: Any, shown: Callable[[], list[tuple[str, list[str]]]], record: Record) -> None:
        self.vendor = vendor
        self._shown = shown
        self._record = record
        self._known = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._shown())

    def wait(self, text: str) -> None:
        """Wait until a new message says this, and record what is new."""
        self.vendor.wait(lambda: any(text in one for one, _ in self._shown()[self._known :]), text)
        for said, buttons in self._shown()[self._known :]:
            self._record.say(
                "whet", "\n".join([said, *([" ".join(f"[{b}]" for b in buttons)] if buttons else [])])
            )
        self._known = len(self._shown())

    def changed(self, number: int) -> None:
        """Wait until a message has lost its buttons, and record its new last lines."""
        self.vendor.wait(lambda: not self._shown()[number][1], "buttons taken away")
        end = self._shown()[number][0].rpartition("\n\n")[2]
        self._record.say("whet", f"(the question has no buttons now and ends with)\n{end}")


def telegram(page: str, play: Callable[..., Any]) -> Record:
    """A stranger is let in; then, with her id in the file, the owner."""
    record = Record()
    with TelegramChat() as vendor:
        file = page.replace('kind = "telegram"', f'kind = "telegram"\nbase_url = "{vendor.url}"')

        def shown() -> list[tuple[str, list[str]]]:
            return [
                (one["text"], [b["text"] for row in one["buttons"] for b in row])
                for one in list(vendor.sends)
            ]

        seen = Seen(vendor, shown, record)
        with play(file, [ScriptedReply(text="Hello! What can I do for you?")]) as gateway:
            vendor.write("hello")
            record.say("ann", "hello")
            seen.wait("whet gateway pair accept")
            code = re.findall(r"code is (\S+),", vendor.said()[0])[0]
            done = gateway.whet("gateway", "pair", "accept", code)
            record.say("$", f"whet gateway pair accept {code}\n{done.stdout.strip()}")
            seen.wait("You are in")
            vendor.write("hello again")
            record.say("ann", "hello again")
            seen.wait("What can I do")
        record.say("", "(her id is in the file now)")
        with play(file + _OWNER.format(kind="telegram", user=7), script()):
            _allow(
                record,
                seen,
                vendor.write,
                lambda: vendor.answer(vendor.press_at("Allow once", name="ann")),
            )
    record.lines = [line.replace(code, "K7QM-3XWD") for line in record.lines]
    return record


def discord(page: str, play: Callable[..., Any]) -> Record:
    """The owner, by a private message."""
    record = Record()
    with DiscordChat() as vendor:
        file = page.replace('kind = "discord"', f'kind = "discord"\nbase_url = "{vendor.url}"')

        def shown() -> list[tuple[str, list[str]]]:
            return [
                (one["content"], [b["label"] for row in one.get("components", []) for b in row["components"]])
                for one in list(vendor.messages.values())
            ]

        seen = Seen(vendor, shown, record)
        with play(file + _OWNER.format(kind="discord", user="7"), script()):
            vendor.wait_connected()
            _allow(
                record,
                seen,
                vendor.write,
                lambda: vendor.answer(vendor.press_at("Allow once", name="ann")),
            )
    return record


def slack(page: str, play: Callable[..., Any]) -> Record:
    """The owner, by a direct message."""
    record = Record()
    with SlackChat() as vendor:
        file = page.replace('kind = "slack"', f'kind = "slack"\nbase_url = "{vendor.url}"')

        def shown() -> list[tuple[str, list[str]]]:
            return [
                (one["text"], [e["text"]["text"] for b in one["blocks"] for e in b.get("elements", [])])
                for one in list(vendor.messages.values())
            ]

        def press() -> str:
            vendor.press_at("Allow once", name="ann")
            return vendor.whisper()

        seen = Seen(vendor, shown, record)
        with play(file + _OWNER.format(kind="slack", user="U7"), script()):
            _allow(record, seen, vendor.write, press, title="!title")
    return record


def webhook(page: str, play: Callable[..., Any]) -> Record:
    """A program that speaks for somebody: every request and every answer."""
    record, port, vendor = Record(), quiet_port(), WebhookChat()
    with vendor:
        file = page.replace("127.0.0.1:6090", f"127.0.0.1:{port}").replace(
            "https://example.org/whet", f"{vendor.url}/in"
        )
        heard = 0

        def post(id_: str, kind: str, text: str) -> None:
            data = {"conversation": "c", "user": "ann", "text": text}
            body = msgspec.json.encode({"type": kind, "data": data})
            headers = sign_headers(b"k" * 32, id_, int(time.time()), body)
            answer = httpx2.post(f"http://127.0.0.1:{port}/", content=body, headers=headers)
            record.say("POST", f"http://127.0.0.1:6090/  webhook-id: {id_}\n{_spaced(body)}")
            record.say(str(answer.status_code), _spaced(answer.content))

        def hear(text: str) -> None:
            nonlocal heard
            vendor.wait_said(text)
            for one in vendor.bodies[heard:]:
                record.say("POST", f"https://example.org/whet\n{_spaced(one.encode())}")
                record.say("204", "")
            heard = len(vendor.bodies)

        with play(file + _OWNER.format(kind="webhook", user="ann"), script()):
            vendor.wait(lambda: _listens(port), "the webhook listening")
            post("a1", "message", ASK)
            hear("May I run this?")
            post("a2", "press", vendor.got[-1]["buttons"][0]["data"])
            hear("is gone")
    words = {
        word: f"Hq2f8xWmT0Zd{mark}"
        for word, mark in re.findall(r'"data":"([\w-]+)(:.)"', "".join(vendor.bodies))
    }
    text = "\n".join(record.lines)
    for word in words:
        text = text.replace(word, "Hq2f8xWmT0Zd")
    text = re.sub(r'"id": "[0-9a-f]+-(\d+)"', r'"id": "19aa71dd240-\1"', text)
    record.lines = re.sub(r'"timestamp": \d+', '"timestamp": 1763712000', text).split("\n")
    return record


def script() -> list[ScriptedReply]:
    """What the model does: one risky command, then its answer."""
    return [calls(("terminal", '{"command": "rm -rf build"}')), ScriptedReply(text=ANSWER)]


def _allow(
    record: Record,
    seen: Seen,
    write: Callable[[str], object],
    press: Callable[[], str],
    *,
    title: str = "/title",
) -> None:
    question = seen.count
    write(ASK)
    record.say("", "(The sandbox is off here; with it, this would run without a question.)")
    record.say("ann", ASK)
    seen.wait("May I run this?")
    record.say("ann", f"presses Allow once and sees: {press()}")
    seen.changed(question)
    seen.wait("is gone")
    write(title)
    record.say("ann", title)
    seen.wait(ASK)


def _spaced(body: bytes) -> str:
    """Write JSON so that it can be broken into lines."""
    return msgspec.json.format(body, indent=0).decode()


def _listens(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/").status_code == 405
    except httpx2.HTTPError:
        return False


RECORDERS: dict[str, Callable[[str, Callable[..., Any]], Record]] = {
    "telegram": telegram,
    "discord": discord,
    "slack": slack,
    "webhook": webhook,
}


def page(kind: str, *, inside: bool) -> str:
    """Give a platform's page with a conversation recorded again."""
    text = (DOCS / f"gateway-{kind}.md").read_text("utf-8")
    file = text.partition("```toml\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"

        @contextmanager
        def play(file: str, replies: list[ScriptedReply]) -> Iterator[GatewayProcess]:
            with PracticeServer(script=replies) as model:
                gateway = GatewayProcess(Path(folder) / "home", file, model, mode="ask")
                gateway.work = work  # not in Whet's home, where every deletion is said to be in it
                (work / "build").mkdir(parents=True, exist_ok=True)
                with served(gateway) if inside else running(gateway):
                    yield gateway

        recorded = "\n".join(RECORDERS[kind](file, play).lines)
        assert not (work / "build").exists(), "the build folder is still there"
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{recorded}\n\n{_END}{rest.partition(_END)[2]}"


def main() -> int:
    """Write the pages, or say which are stale; give the exit code."""
    is_check, stale = "--check" in sys.argv[1:], 0
    os.environ["WHET_SANDBOX_MODE"] = "off"  # the question is what the pages show
    for kind in RECORDERS:
        path = DOCS / f"gateway-{kind}.md"
        with contextlib.redirect_stdout(sys.stderr):
            wanted = page(kind, inside=is_check)
        if not is_check:
            path.write_text(wanted, "utf-8")
        elif wanted != path.read_text("utf-8"):
            stale += 1
            difference = difflib.unified_diff(
                path.read_text("utf-8").split("\n"), wanted.split("\n"), lineterm=""
            )
            sys.stdout.write(
                f"{path} is stale: python docs/conversations.py\n" + "\n".join(difference) + "\n"
            )
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
