"""The whole way as people have it: a service process, an agent waiting over HTTP, a thumb on a button."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.browser.conftest import Daemon
from tests.confirm.people import channel
from tests.confirm.vendors.telegram import TOKEN, TelegramServer

pytestmark = pytest.mark.slow


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
