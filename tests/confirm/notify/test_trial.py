"""What an operator learns at the terminal about channels: a trial message, and a chat that does not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import forked
from tests.browser.conftest import Daemon
from tests.confirm.notify.test_notifier import SECRET, Receiver
from tests.confirm.people import channel
from tests.confirm.process import Served
from tests.confirm.running import SUBMIT
from tests.confirm.vendors.telegram import TOKEN, TelegramServer

ENV = {"TELEGRAM_BOT_TOKEN": TOKEN, "CONFIRMATION_WEBHOOK_SECRET": SECRET}


@pytest.fixture
def telegram():
    with TelegramServer() as server:
        yield server


def write_channels(folder: Path, telegram: TelegramServer, *chats: int, more: str = "") -> None:
    (folder / "confirm").mkdir(parents=True)
    named = {f"chat{number}": chat for number, chat in enumerate(chats)}.items()
    entries = [channel("telegram", name=name, chat=chat, base_url=telegram.url) for name, chat in named]
    (folder / "confirm/channels.toml").write_text("".join(entries) + more)


def try_channels(folder: Path, *options: str) -> forked.Done:
    environ = {"WHET_HOME": str(folder), **ENV}
    return forked.run(("confirm", "try-channels", *options), folder, environ=environ)


@pytest.mark.slow
def test_a_trial_message_arrives_in_every_channel_and_decides_nothing(tmp_path, telegram):
    with Receiver() as hook:
        write_channels(tmp_path, telegram, -1001, more=channel("webhook", url=f"{hook.url}/hook"))
        done = try_channels(tmp_path)
        assert done.code == 0 and done.err == ""
        assert "arrived, message -1001/1" in done.out and "webhook" in done.out
        body = json.loads(hook.got[0][1])
        assert body["type"] == "confirmation.trial" and body["data"]["details"] == ""
    message = telegram.messages[1]
    assert message["text"].startswith("Trial message: there is nothing to decide")
    assert "not checked" not in message["text"] and message["reply_markup"] == {"inline_keyboard": []}


@pytest.mark.slow
def test_a_wrong_chat_is_named_and_the_others_are_tried(tmp_path, telegram):
    write_channels(tmp_path, telegram, -1001, -9)
    done = try_channels(tmp_path, "--json")
    assert done.code == 1
    first, second = json.loads(done.out)["channels"]
    assert (first["channel"], first["sent"], first["problem"]) == ("chat0", True, "")
    assert (second["sent"], "chat not found" in second["problem"]) == (False, True)
    assert "failed: " in try_channels(tmp_path).out


WITHOUT_EXTRAS = """
import sys
sys.modules["wsproto"] = sys.modules["apprise"] = None  # importing them fails
from whet.cli.main import main
sys.exit(main())
"""


def run_without_extras(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **ENV, "WHET_HOME": str(folder), "APPRISE_URLS": "json://127.0.0.1:9"}
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_channels_without_their_extra_are_named_and_the_others_work(tmp_path, telegram):
    write_channels(tmp_path, telegram, -1001, more=channel("discord", chat=1) + channel("apprise"))
    done = run_without_extras(tmp_path, "confirm", "try-channels", "--json")
    assert done.returncode == 1, done.stderr
    problems = {trial["channel"]: trial["problem"] for trial in json.loads(done.stdout)["channels"]}
    assert problems == {
        "chat0": "",
        "discord": "wsproto is not installed: pip install 'whet-agent[discord]'",
        "apprise": "apprise is not installed: pip install 'whet-agent[notify]'",
    }
    report = " ".join(run_without_extras(tmp_path, "doctor").stdout.split())
    for name in ("discord", "apprise"):
        assert f"channel {name} delivers nothing: {problems[name]}" in report


def test_without_channels_the_command_says_where_they_are_set(tmp_path):
    done = try_channels(tmp_path)
    done.assert_error("no channel in", "confirm/channels.toml")


@pytest.mark.slow
def test_the_terminal_names_a_wrong_chat_once(tmp_path, telegram, monkeypatch):
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    write_channels(tmp_path / "home", telegram, -9)
    with Served(tmp_path) as served:
        assert served.process is not None and served.process.stdout is not None
        for number in range(3):
            body = {**SUBMIT, "action": f"deploy-{number}"}
            assert served.call("POST", "/confirm", body, role="submit")[0] == 202
        telegram.wait(lambda: len([c for c in telegram.calls if c[0] == "sendMessage"]) == 3, "three sends")
        assert served.terminate() == 0
        lines = served.process.stdout.read().decode().splitlines()
    lines = [line for line in lines if "channel chat0 fails: " in line and "chat not found" in line]
    assert len(lines) == 1 and "whet confirm try-channels" in lines[0]


@pytest.mark.slow
def test_the_service_outlives_the_terminal_to_which_it_reports_channels(tmp_path, telegram, monkeypatch):
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    write_channels(tmp_path / "home", telegram, -9)
    with Served(tmp_path) as served:
        assert served.process is not None and served.process.stdout is not None
        served.process.stdout.close()
        for number in range(2):
            body = {**SUBMIT, "action": f"deploy-{number}"}
            assert served.call("POST", "/confirm", body, role="submit")[0] == 202
        served.wait_for_metric('whet_confirm_deliveries{channel="log",status="sent"} 2')
        assert served.terminate() == 0


@pytest.mark.slow
def test_a_press_in_a_chat_reaches_the_agent_that_waits(tmp_path):
    with TelegramServer() as server:
        channels = tmp_path / "channels.toml"
        text = channel("telegram", chat=-1001, base_url=server.url)
        channels.write_text(f"[people.owner]\ntelegram = 7\n{text}")
        daemon = Daemon(tmp_path / "home", "--channels", str(channels), environ={"TELEGRAM_BOT_TOKEN": TOKEN})
        try:
            request_id = daemon.submit(action="wipe_database", description="All of it")
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(daemon.status, request_id, 30)
                message = server.message()
                # The page is on this machine: its address is text, as a button would lead nowhere on a phone.
                assert f"Page (on that machine): {daemon.url}/r/{request_id}" in message["text"]
                server.answer(server.press(1, "wrong target"))
                got = waiting.result(30)
            assert (got["status"], got["resolved_by"], got["reason"]) == ("denied", "owner", "wrong target")
            server.wait(lambda: server.messages[1]["text"].startswith("Denied"), "the edited message")
        finally:
            daemon.stop()
        for log in (tmp_path / "home" / "logs").glob("*"):
            assert TOKEN not in log.read_text()
