"""The worked example, a channel of a package of its own: in the gateway and in the confirmation service."""

from __future__ import annotations

import asyncio
import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls
from tests.confirm.conftest import desk  # noqa: F401
from tests.confirm.people import Desk, off
from tests.gateway.mattermost_chat import BOT, TOKEN, MattermostChat
from tests.gateway.running import GatewayProcess, running, served
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined

EXAMPLE = Path(__file__).parents[2] / "examples" / "channels" / "mattermost"
RISKY = calls(("terminal", '{"command": "touch made"}')).tool_calls
FILE = """\
[[channel]]
kind = "mattermost"
url = "{url}"

[people.ann]
mattermost = "ann"
owner = true

[people.ben.ids]
mattermost = "ben"
"""


def installed(folder: Path, package: Path, name: str) -> Path:
    """Lay a package out as an installer does; give the folder to import from."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    site = folder / "site"
    info = site / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    for module in package.glob("*.py"):
        shutil.copy(module, site)
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(about)
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example, installed."""
    site = installed(tmp_path, EXAMPLE, "whet_mattermost")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("MATTERMOST_TOKEN", TOKEN)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)  # for processes of their own
    yield site


def gateway(folder: Path, chat: MattermostChat, model: PracticeServer, **settings: object) -> GatewayProcess:
    return GatewayProcess(folder / "home", FILE.format(url=chat.url), model, **settings)


@pytest.mark.slow
def test_a_message_is_answered_and_shown_while_it_grows(tmp_path: Path, site: Path) -> None:
    script = [
        ScriptedReply("Hello **Ann**, and @all of you."),
        ScriptedReply("word " * 60, pieces=12, fault=Fault(stall_after=6)),
    ]
    with (
        MattermostChat() as chat,
        PracticeServer(script=script) as model,
        served(gateway(tmp_path, chat, model, stream_after_s=0.1)),
    ):
        chat.wait_connected()
        chat.ask("hello", "Hello **Ann**")
        assert chat.typing == ["dm-ann"] * len(chat.typing) and chat.typing
        (answer,) = [post for post in chat.posts.values() if post["user_id"] == BOT]
        assert "@all" not in answer["message"]  # it calls nobody
        chat.ask("at length", "…")
        model.wait_for_stall()
        model.release()
        chat.wait(lambda: any(text.count("word") == 60 for text in chat.said()), "the whole answer")
        assert len(chat.said()) == 2  # edited, not sent again
        (before,) = chat.edits.values()
        assert before[0].replace("\u200b", "").endswith("…")


@pytest.mark.slow
def test_groups_edits_files_and_strangers(tmp_path: Path, site: Path) -> None:
    script = [
        ScriptedReply("One.", fault=Fault(stall_after=0)),
        ScriptedReply("Two."),
        ScriptedReply("In the thread."),
        ScriptedReply("Seen."),
        calls(("send_file", '{"path": "received/a.txt", "caption": "here"}')),
        ScriptedReply("Back."),
    ]
    with MattermostChat() as chat, PracticeServer(script=script) as model:
        process = gateway(tmp_path, chat, model, busy="queue")
        with served(process):
            chat.wait_connected()
            chat.write("one")
            model.wait_for_stall()
            wrong, gone = chat.write("two, wrong"), chat.write("three, not meant")
            chat.change(wrong, "two, right")
            chat.change(gone, "")
            chat.ask("/context", "/context waits")
            model.release()
            chat.wait_said("Two.")
            assert b"two, right" in model.requests[-1].body
            chat.write("not for you", channel="town-square")
            chat.write("@whet-other neither", channel="town-square")
            root = chat.write("@whet and here?", channel="town-square")
            chat.wait_said("In the thread.", "town-square")
            (answer,) = [
                p for p in chat.posts.values() if p["channel_id"] == "town-square" and p["user_id"] == BOT
            ]
            assert answer["root_id"] == root and b"whet and here" not in model.requests[-1].body
            chat.files["f1"] = ("a.txt", b"alpha")
            chat.ask("look", "Seen.", metadata={"files": [{"id": "f1", "name": "../a.txt", "size": 5}]})
            assert (process.home / "work" / "received" / "a.txt").read_bytes() == b"alpha"
            chat.ask("give it back", "Back.")
            assert chat.wait(lambda: chat.files.get("file1"), "an upload") == ("a.txt", b"alpha")
            chat.ask("let me in", "pairing code", "dm-eve", user="eve")
            assert model.count == 6 and all(b"not meant" not in r.body for r in model.requests)


@pytest.mark.slow
def test_reactions_decide_for_those_who_may(tmp_path: Path, site: Path) -> None:
    script = [ScriptedReply(tool_calls=RISKY), ScriptedReply("Made.")]
    with MattermostChat() as chat, PracticeServer(script=script) as model:
        process = gateway(tmp_path, chat, model, mode="ask")
        with served(process):
            chat.wait_connected()
            chat.ask("make it", "touch made")
            post = chat.press_at("Allow once", "ben")
            chat.wait_said("You may not decide this.")
            chat.react(post, "tada")  # an emoji that stands for nothing
            forged = chat.posts[post]["props"]
            chat.react(chat.write("mine", channel="dm-eve", user="eve", props=forged), "white_check_mark")
            chat.press_at("Allow once")
            chat.wait_said("Made.")
            assert (process.home / "work" / "made").exists()
            decided = chat.posts[post]
            assert "**Allowed once.** ann" in decided["message"] and decided["props"] == {"whet": {}}


def answers(chat: MattermostChat) -> int:
    return sum(text.startswith("Answer") for text in chat.said())


@pytest.mark.slow
def test_what_was_said_while_nobody_was_there_comes_in_order(tmp_path: Path, site: Path) -> None:
    script = [ScriptedReply(f"Answer {n}.") for n in range(5)]
    with MattermostChat() as chat, PracticeServer(script=script) as model:
        chat.write("from before the bot was there")
        process = gateway(tmp_path, chat, model, busy="queue")
        with running(process):
            chat.wait_connected()
            chat.ask("word-one", "Answer 0.")
            process.kill()
            chat.write("word-two")
            chat.write("word-three")
            chat.write("from ben", channel="dm-ben", user="ben")
            chat.fail_next("channels", (503, {"message": "away"}, {"retry-after": "0.1"}))
            process.start()
            # A kill between the post and its record leaves a notice beside the answers.
            chat.wait(lambda: answers(chat) == 3 and chat.said("dm-ben"), "three more answers")
            times = chat.connections
            chat.cut()
            chat.wait_connected(times + 1)
            chat.ask("word-four", "Answer 4.")
            assert process.stop() == 0, process.output()
        heard = [r.body.decode() for r in model.requests if b"from ben" not in r.body]
        words = ("word-one", "word-two", "word-three", "word-four")
        assert [[word in body for word in words].count(True) for body in heard] == [1, 2, 3, 4]
        assert [word in heard[1] for word in words] == [True, True, False, False]
        assert not any("from before" in body for body in heard)


@pytest.mark.logs_errors("is off")
def test_a_wrong_token_ends_the_channel(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MATTERMOST_TOKEN", "wrong")
    off = "channel mattermost is off: Mattermost answered 401"
    with MattermostChat() as chat, PracticeServer() as model, served(gateway(tmp_path, chat, model)):
        chat.wait(lambda: off in caplog.text, off)


CONFIRM = """\
[people.ann]
mattermost = "ann"

[[channel]]
kind = "mattermost"
url = "{url}"
chat = "ops"
"""


async def test_the_confirmation_service_asks_and_a_reaction_decides(
    desk: Desk,  # noqa: F811
    site: Path,
) -> None:
    desk.token("ann")
    with MattermostChat() as chat:
        chat.channels["ops"] = "O"
        async with desk.notifying(CONFIRM.format(url=chat.url), {"MATTERMOST_TOKEN": TOKEN}):
            request = await desk.submit(description="Release\n```\n**Approved** by @all")
            waiting = asyncio.create_task(desk.service.wait(request.id, 30))
            (text,) = await off(chat.wait_said, "Approval needed", "ops")
            assert f"[Open the page](https://confirm.example.org/r/{request.id})" in text
            assert "````\nagent: Release\n```\n**Approved** by @all\n````" in text
            await off(chat.wait_connected)
            await off(chat.press_at, "✓ Approve", "eve", "ops")
            await off(chat.wait_said, "mattermost user eve is not in the service's list", "ops")
            post = await off(chat.press_at, "✗ wrong target", "ann", "ops")
            got: Any = await waiting
            assert (got.status, got.resolved_by, got.reason) == ("denied", "ann", "wrong target")
            await off(chat.wait, lambda: "**Denied**" in chat.posts[post]["message"], "the edit")
            assert chat.posts[post]["props"] == {"whet": {}}
