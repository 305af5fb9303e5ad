"""One act of a person is one message to the model, on each platform, with what it quotes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.vendors.slack_chat import SlackChat
from tests.gateway.parts import Rig, model, place, rig
from tests.gateway.test_channels import SLACK, on
from tests.support import each
from whet.channels.markup import read_mrkdwn
from whet.contract.brought_text import drop_marks
from whet.contract.channels import FileRef, Incoming, PlatformLimits
from whet.gateway.acts import continues_act, join_updates, seconds_for_more
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined
__all__ = ["model", "rig"]

LIMITS = PlatformLimits(3_500, 1.0, 1.0, pasted_chars=2_000, forward_s=0.35)
PHOTO = (FileRef("f", "photo.jpg"),)
LONG = "x" * 4_096


def message(text: str = "", **more: Any) -> Incoming:
    return Incoming(place(), "u", "message", text=text, ref="r", **more)


def asked(model: PracticeServer) -> list[str]:
    """Return what the person said in each request's last message, without the turn's note."""
    texts: list[str] = []
    for request in model.requests:
        content = json.loads(request.body)["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        text = drop_marks(text)
        texts.append(text.rpartition("\n\n[")[0] or text)  # one that joins a running turn has no note
    return texts


@each(
    ("earlier", "later", "is_one"),
    [
        (message("hi"), message("there"), False),
        (message(LONG), message("the end"), True),
        (message("x" * 1_000), message("another thought"), False),
        (message(files=PHOTO, album="a"), message(files=PHOTO, album="a"), True),
        (message(files=PHOTO, album="a"), message(files=PHOTO, album="b"), False),
        (message(files=PHOTO, album="a"), message("what is it?"), True),
        (message("look", files=PHOTO, album="a"), message("and now something else"), False),
        (message(files=PHOTO), message("what is it?"), True),
        (message("what is it?", files=PHOTO), message("hello?"), False),
        (message("what do you think?"), message("their words", is_forward=True), True),
        (message("their words", is_forward=True), message("what do you think?"), True),
        (message("one", is_forward=True), message("two", is_forward=True), True),
        (message("one", is_forward=True, at_s=100.0), message("two", at_s=110.0), False),
        (message(LONG, at_s=100.0), message("the end", at_s=101.0), True),
    ],
)
def test_marks_and_sizes_say_what_belongs_together(earlier: Incoming, later: Incoming, is_one: bool) -> None:
    assert continues_act(earlier, later, LIMITS) is is_one


def test_nothing_is_waited_for_without_a_mark() -> None:
    assert seconds_for_more(message("hi"), PlatformLimits(200, 1.0, 1.0)) == 0
    assert seconds_for_more(message(LONG), PlatformLimits(200, 1.0, 1.0)) == 0


def test_a_word_that_the_app_cut_is_whole_again_and_other_parts_keep_their_lines() -> None:
    assert join_updates([message(LONG), message("yz")]).text == f"{LONG}yz"
    assert join_updates([message("x" * 3_000), message("yz")]).text == f"{'x' * 3_000}\nyz"
    joined = join_updates([message(files=PHOTO, album="a"), message("see", files=PHOTO, album="a")])
    assert (joined.text, len(joined.files), joined.ref) == ("see", 2, "")


async def test_the_parts_of_an_album_in_a_group_are_read_if_one_of_them_names_the_bot(rig: Rig) -> None:
    where = place("7", "room", group=True)
    parts = [
        Incoming(where, "p1", "message", text="what is it?", files=PHOTO, album="a", mentions_us=True),
        Incoming(where, "p2", "message", files=PHOTO, album="a"),
        Incoming(where, "p3", "message", text="lunch?"),
    ]
    await rig.intake.take(parts)
    assert [rig.state(number) for number in ("p1", "p2", "p3")] == ["waiting", "waiting", ""]


@pytest.mark.slow
def test_slack_a_reply_in_a_thread_quotes_what_the_thread_began_with_once(tmp_path: Path) -> None:
    slack = SlackChat()
    script = [ScriptedReply(f"Answer {number}.") for number in range(3)]
    with on(slack, SLACK, tmp_path, script) as process:
        root = slack.write("Option A or Option B?")
        slack.wait_said("Answer 0.")
        for number, text in enumerate(("the second", "sure?"), 1):
            slack.ask(text, f"Answer {number}.", thread_ts=root)
        assert asked(process.model) == [
            "Option A or Option B?",
            "<quoted>U7: Option A or Option B?</quoted>\nthe second",
            "sure?",
        ]


@pytest.mark.parametrize(
    ("sent", "typed"),
    [
        ("<https://ex.com/a?b=1&amp;c=2|the page>", "the page (https://ex.com/a?b=1&c=2)"),
        ("<https://ex.com>", "https://ex.com"),
        ("<http://ex.com|ex.com>", "http://ex.com"),
        ("<mailto:bo@ex.com|bo@ex.com>", "bo@ex.com"),
        ("<#C1|general> <#C2> <@U1> <!here> <!subteam^S1|@ops>", "#general #C2 @U1 @here @ops"),
        ("`a &lt; b &amp;&amp; c &gt; d`", "`a < b && c > d`"),
        (
            "by <!date^1^{date}|Monday> or <!date^1^{time}^https://ex.com|noon>",
            "by Monday or noon (https://ex.com)",
        ),
    ],
)
def test_slack_s_marks_are_read_as_they_were_typed(sent: str, typed: str) -> None:
    assert read_mrkdwn(sent) == typed
