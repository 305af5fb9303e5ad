"""The door for platforms: what it opens and refuses; a package that fails is off, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.confirm.conftest import desk  # noqa: F401
from tests.confirm.people import Desk, off
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, served
from whet.channels import loading
from whet.channels.loading import kinds, open_channel
from whet.contract.channels import (
    ChatPlace,
    Incoming,
    Memo,
    Outgoing,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.contract.errors import ConfigError
from whet.contract.protocols import ApprovalRequest
from whet.gateway.asking import ChatPerson
from whet.gateway.open_questions import ChatQuestions
from whet.gateway.open_questions import QuestionRoute as AskingDesk
from whet.gateway.router import Router
from whet.gateway.settings import open_channels, parse_gateway, read_gateway
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

BROKEN = """\
import msgspec
from whet.contract.channels import PlatformLimits, Platform

class Settings(msgspec.Struct):
    token_env: str = "PAGER_TOKEN"
    room: str = ""

class Pager:
    limits = PlatformLimits(1000, 1.0, 1.0)

    def __init__(self, name):
        self.name = name

    def __getattr__(self, method):
        async def fail(*args, **more):
            raise KeyError(f"no {method} today")
        return fail

def refuse(name, settings, tokens):
    raise ZeroDivisionError("sk-ant-REDACTED")

PLATFORM = Platform(Settings, lambda name, settings, tokens: Pager(name))
REFUSES = Platform(Settings, refuse)
NOTHING = "pager"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages that fail, each in a way of its own, and one that takes the name of a platform of ours."""
    folder = tmp_path / "site"
    info = folder / "pager-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    entries = {
        "pager": "broken_pager:PLATFORM",
        "refuses": "broken_pager:REFUSES",
        "nothing": "broken_pager:NOTHING",
        "absent": "no_such_module_at_all:PLATFORM",
        "telegram": "broken_pager:PLATFORM",
    }
    text = "[whet.channels]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(text)
    (folder / "broken_pager.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(folder))
    return folder


async def why(kind: str) -> SendFailed:
    """Open a channel and give what its first call says."""
    channel, _ = open_channel(kind, "it", {}, {"PAGER_TOKEN": "x"})
    with pytest.raises(SendFailed) as error:
        await channel.send(ChatPlace("it", "1"), Outgoing("hello"), "k")
    return error.value


def test_packages_that_can_not_be_used_say_why_at_every_call(site: Path) -> None:
    for kind, says in (
        ("absent", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("nothing", "TypeError: broken_pager:NOTHING is not a whet.contract.channels.Platform"),
        ("refuses", "ZeroDivisionError: "),
    ):
        error = asyncio.run(why(kind))
        assert says in error.reason and "abcdefghijklm" not in error.reason
        assert (error.is_final, error.is_barred, error.maybe_sent) == (True, True, False)  # it waits


def test_what_code_raises_while_it_sends_may_have_got_through(site: Path) -> None:
    error = asyncio.run(why("pager"))
    assert error.reason == "its code failed (KeyError: 'no send today')"
    assert (error.is_final, error.is_barred, error.maybe_sent) == (False, False, True)


class Careful:
    """A platform in this process that hears three things and is asked for some."""

    name = "it"
    limits = PlatformLimits(1000, 1.0, 1.0)

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        verbs: tuple[Verb, ...] = ("message", "press", "edit")
        await take([Incoming(ChatPlace("it", "1"), verb, verb) for verb in verbs])
        raise ConfigError("as the store would")


def test_only_what_is_wanted_is_heard_and_our_own_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    async def take(updates: object) -> None:
        heard.extend(update.verb for update in updates)  # type: ignore[attr-defined]

    async def main(wants: frozenset[Verb]) -> None:
        channel = loading.IsolatedChannel("it", Careful())  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            await channel.listen(take, None, wants)  # type: ignore[arg-type]

    asyncio.run(main(frozenset(("press",))))
    assert heard == ["press"]


def test_a_name_of_ours_is_ours_and_others_are_listed(site: Path) -> None:
    assert kinds()[:4] == ["telegram", "discord", "slack", "webhook"] and len({*kinds()}) == len(kinds())
    assert {"pager", "absent"} <= set(kinds()) and kinds().count("telegram") == 1
    channel, tokens = open_channel("telegram", "it", {}, {"TELEGRAM_BOT_TOKEN": "1:x"})
    assert tokens == ("1:x",) and channel.limits.shows_cards


@pytest.mark.parametrize(
    ("kind", "fields", "secrets", "says"),
    [
        ("nowhere", {}, {}, "there is no platform 'nowhere': no package with it is installed beside Whet"),
        ("pager", {"rum": 1}, {}, "channel it: unknown field `rum`"),
        ("pager", {"room": 1}, {}, "channel it: Expected `str`, got `int` - at `$.room`"),
        ("pager", {}, {}, "channel it: PAGER_TOKEN is not set"),
        ("pager", {"token_env": "OTHER"}, {"PAGER_TOKEN": "x"}, "channel it: OTHER is not set"),
        ("pager", {"token_env": ""}, {"PAGER_TOKEN": " "}, "channel it: PAGER_TOKEN is not set"),
        ("pager", {}, {"PAGER_TOKEN": "a\nb"}, "channel it: PAGER_TOKEN is not set"),
        ("pager", {}, {"PAGER_TOKEN": "ключ"}, "channel it: PAGER_TOKEN is not set"),
        ("webhook", {}, {"GATEWAY_WEBHOOK_SECRET": "x"}, "channel it: the webhook's secret is not usable"),
    ],
)
def test_settings_that_can_not_work_are_refused(
    site: Path, kind: str, fields: dict[str, object], secrets: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        open_channel(kind, "it", fields, secrets)
    assert error.value.message == says


def test_one_bot_can_not_be_two_channels_of_a_gateway(tmp_path: Path) -> None:
    secrets = {"A": "1:x", "B": "1:x", "C": "2:x", "GATEWAY_WEBHOOK_SECRET": "whsec_" + "A" * 44}
    text = "[[channel]]\nkind = 'telegram'\nname = '{}'\ntoken_env = '{}'\n"
    hook = "[[channel]]\nkind = 'webhook'\nname = '{}'\nlisten = '127.0.0.1:{}'\nurl = 'http://127.0.0.1:9'\n"
    path = tmp_path / "gateway.toml"
    path.write_text(text.format("a", "A") + text.format("c", "C") + hook.format("d", 1) + hook.format("e", 2))
    assert len(open_channels(read_gateway(path), secrets)) == 4
    path.write_text(text.format("a", "A") + text.format("b", "B"))
    with pytest.raises(ConfigError, match="channels a and b are the same on telegram"):
        open_channels(read_gateway(path), secrets)


@pytest.mark.slow
@pytest.mark.logs_errors("is off")
def test_a_gateway_with_a_broken_package_serves_its_other_channels(
    tmp_path: Path, site: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER_TOKEN", "x")
    more = "".join(f'[[channel]]\nkind = "{kind}"\n' for kind in ("pager", "absent", "nothing"))
    with TelegramChat() as telegram, PracticeServer(script=[ScriptedReply("Still here.")]) as model:
        process = GatewayProcess(tmp_path / "home", more + TELEGRAM.format(url=telegram.url), model)
        with served(process):
            telegram.ask("hello", "Still here.")
            for kind in ("pager", "absent", "nothing"):
                telegram.wait(lambda kind=kind: f"channel {kind} is off" in caplog.text, kind)
        assert "no listen today" in caplog.text
        shown = process.whet("gateway", "status")
        rows = {line.split()[0]: line for line in shown.stdout.splitlines() if line.strip()}
        assert shown.returncode == 0 and "not running" in rows["telegram"]
        failed = "its code failed (ModuleNotFoundError: No module named 'no_such_module_at_all')"
        assert " off " in shown.stdout and f"absent can't be opened: {failed}" in shown.stdout.splitlines()


async def test_a_confirmation_service_with_a_broken_package_tells_the_others(
    desk: Desk,  # noqa: F811
    site: Path,
) -> None:
    with TelegramServer() as telegram:
        file = "".join(f'[[channel]]\nkind = "{kind}"\nchat = 1\n' for kind in ("pager", "absent"))
        file += f'[[channel]]\nkind = "telegram"\nchat = -1001\nbase_url = "{telegram.url}"\n'
        async with desk.notifying(file, {"PAGER_TOKEN": "x", "TELEGRAM_BOT_TOKEN": TOKEN}) as notifier:
            request = await desk.submit()
            await off(telegram.message)
            dead = await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "dead"])
            assert [d.channel for d in dead] == ["absent"]
            await desk.until(lambda: len([s for s in notifier.states() if s.listen_error]) == 2)
            failed = await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "failed"])
            assert failed[0].error == "its code failed (KeyError: 'no send today')"


def test_ids_of_people_in_both_ways_of_writing_them() -> None:
    text = parse_gateway(
        '[[channel]]\nkind = "telegram"\nname = "one"\n[people.ann]\ntelegram = 7\nowner = true\n'
        '[people.ann.ids]\nmatrix = "@ann:example.org"\nslack = ""\n[people.ben]\nids = {telegram = "8"}\n'
    )
    assert text.people["ann"].ids == {"telegram": 7, "matrix": "@ann:example.org", "slack": ""}
    router = Router({channel.name: channel for channel in text.channel}, text.people, 3)
    assert router.approvers("one") == [("one", "7")]
    for wrong, says in (
        ("[people.ann]\naproves = true", "people.ann: `aproves` is neither a platform nor a setting"),
        (
            "[[channel]]\nkind = 'pigeon'\n[people.ann]\npigeon = 7",
            "there is no platform 'pigeon': no package with it is installed",
        ),
        ("[people.ann]\ntelegram = true", "Expected `int | str`, got `bool`"),
        ("[people.ann]\nids = 7", "Expected `object`, got `int`"),
        ("people = 7", "Expected `object`, got `int`"),
        ("[people]\nann = 7", "Expected `object`, got `int`"),
        ("chanel = 7", "Object contains unknown field `chanel`"),
        ("channel = 7", "Expected `array`, got `int`"),
        ("channel = [7]", "Expected `object`, got `int`"),
        ('[[channel]]\nkind = "telegram"\nsettings = 7', "Expected `object`, got `int`"),
    ):
        with pytest.raises(ConfigError) as error:
            parse_gateway(wrong)
        assert error.value.message.startswith(says), wrong


def test_what_is_longer_than_a_chat_can_hold_is_shown_by_halves_of_it() -> None:
    """Half of its lines at "show all"; where half is no more than what is shown at first, none is offered."""
    texts: list[str] = []

    async def post(messages: Sequence[Outgoing]) -> Sequence[int]:
        texts.append("\n".join(message.text for message in messages))
        return ()

    async def shown(asking: ChatQuestions, mark: str) -> str:
        asking.decide(("irc", "#x"), mark, may_approve=True)
        async with asyncio.timeout(20):
            while not texts:
                await asyncio.sleep(0)
        return texts.pop()

    async def main(lines: list[str], marks: str) -> str:
        asking = ChatQuestions()
        where = AskingDesk(
            1, ("irc", "#x"), post, lambda _: True, PlatformLimits(4000, 1.0, 1.0, has_buttons=False)
        )
        request = ApprovalRequest("s", "c", "terminal", "\n".join(lines), (), "")
        approving = asyncio.create_task(ChatPerson(asking, where, "ann", None).approve(request))
        text = [await shown(asking, mark) for mark in marks][-1]
        asking.decide(("irc", "#x"), "n", may_approve=True)
        assert await approving == "no"
        return text

    assert "… 501 more lines" in asyncio.run(main(["x" * 300] * 1_000, " v"))
    few = asyncio.run(main(["x" * 3_000] * 200, " "))
    assert "… 81 more lines" in few and "`show`" not in few
