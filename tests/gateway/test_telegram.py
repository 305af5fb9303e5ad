"""The gateway on Telegram, driven as a person would: a real process, a server that speaks the Bot API."""

from __future__ import annotations

from pathlib import Path

from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, running
from whet.practice.script import Fault, Reply
from whet.practice.server import PracticeServer


def test_a_message_is_answered_and_survives_a_kill(tmp_path: Path) -> None:
    script = [
        Reply(text="Hello **Ann**.", when="hello there"),
        Reply(text="never seen", when="second", fault=Fault(stall_after=0)),
        Reply(text="Second.", when="second"),
    ]
    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        one = GatewayProcess(tmp_path / "home", TELEGRAM.format(url=telegram.url), model)
        with running(one):
            telegram.write("hello there")
            telegram.wait_said("Hello Ann.")
            update = telegram.write("second")
            model.wait_for_stall()
            one.kill()
            telegram.again(update)  # what Telegram does where the acknowledgement did not arrive
            one.start()
            telegram.wait_said("Second.")
            assert telegram.said() == ["Hello Ann.", "Second."]
            assert telegram.typing
            assert one.stop() == 0, one.output()
        status = one.whet("gateway", "status")
        assert "telegram" in status.stdout and "not running" in status.stdout, status
