"""What was said on Slack while the gateway was off is read when it starts, in order, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.confirm.vendors.slack import too_many
from tests.confirm.vendors.slack_chat import BOT, SlackChat
from tests.gateway.running import GatewayProcess, served
from tests.gateway.test_channels import SLACK
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


def echo(ask: PracticeRequest) -> ScriptedReply:
    """Say what was said."""
    return ScriptedReply(f"re {ask.last_user.splitlines()[0]}")


@pytest.mark.slow
def test_what_was_missed_is_read_in_order_and_a_late_event_changes_nothing(tmp_path: Path) -> None:
    with SlackChat() as slack, PracticeServer(responder=echo) as model:
        process = GatewayProcess(tmp_path / "home", SLACK.format(url=slack.url), model, busy="queue")
        with served(process):
            slack.ask("first", "re first")
            root = slack.write(f"<@{BOT}> look", chat="C1")
            slack.wait_said("re look", chat="C1")
            slack.wait(lambda: not slack.pending, "everything acknowledged")
        slack.forgets = True  # Slack has given up on bringing these
        stamps = [slack.write(f"off {number}") for number in range(3)]
        slack.write(f"<@{BOT}> in the thread", chat="C1", thread_ts=root)
        slack.write("not for us", chat="C1")
        slack.forgets = False
        slack.write("off 0", ts=stamps[0])  # and the first it brings late, in an envelope of its own
        limited = (200, {"ok": False, "error": "ratelimited"}, {"retry-after": "0.1"})
        slack.fail_next("conversations.history", too_many(1), limited)
        with served(process):
            slack.write("live")
            texts = slack.wait_said("re live")
            in_thread = slack.wait_said("re in the thread", chat="C1")
            assert texts == ["re first", "re off 0", "re off 1", "re off 2", "re live"]
            assert in_thread == ["re look", "re in the thread"]
        reads = slack.calls.count("conversations.history")
        slack.fail_next("conversations.history", (200, {"ok": False, "error": "missing_scope"}, {}))
        with served(process):
            slack.write("again")
            assert slack.wait_said("re again")[-1] == "re again", (
                "a history that may not be read stops nothing"
            )
        assert slack.calls.count("conversations.history") > reads >= 4
