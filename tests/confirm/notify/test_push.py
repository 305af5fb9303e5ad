"""Push messages to devices: subscribed on the page, read by one device alone, acknowledged, decided, lost."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.confirm.notify.test_notifier import SECRET, Receiver
from tests.confirm.people import channel
from tests.confirm.running import ManualClock, Running, field_of
from tests.confirm.vendors.push import Phone, PushServer, acknowledge, decode, encode, press
from tests.support import each, wait_until
from whet_confirm import tokens
from whet_confirm.push.devices import PushDevice, check_quiet, quiet_left_s
from whet_confirm.push.encryption import encrypt_with

SMALL = {"action": "restart", "description": "Restart web", "details": {"unit": "web"}}


@pytest.fixture
def push():
    with PushServer() as server:
        yield server


@pytest.fixture
def server(tmp_path):
    with Running(tmp_path, private_callbacks=True, rate=1000) as running:
        running.agent = running.client("submit", "agent")
        yield running


def subscribe(page: Any, push: PushServer, label: str = "phone") -> Phone:
    """Add a device on the page, as the page's script does."""
    text = page.get("/devices").text
    phone = push.subscribe(re.findall(r'data-key="([^"]+)"', text)[0])
    form = {
        "csrf": field_of(text, "csrf"),
        "do": "add",
        "label": label,
        "timezone": "Europe/Berlin",
        "subscription": json.dumps(phone.subscription),
    }
    answer = page.post("/devices", data=form)
    assert answer.status_code == 303, answer.text
    return phone


def change(page: Any, **fields: str) -> httpx2.Response:
    csrf = field_of(page.get("/devices").text, "csrf")
    return page.post("/devices", data={"csrf": csrf, **fields})


def ask(server: Running, **fields: Any) -> str:
    answer = server.agent.post("/confirm", json={**SMALL, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def shown(push: PushServer, phone: Phone, request_id: str, **expected: Any) -> dict[str, Any]:
    """Wait until the phone shows a request, with these values."""

    def find() -> dict[str, Any] | None:
        message = phone.shown.get(request_id)
        fits = message is not None and all(message.get(name) == value for name, value in expected.items())
        return message if fits else None

    return push.wait(find, f"{request_id} with {expected}; shown {phone.shown}")


def deliveries(server: Running, request_id: str) -> dict[str, str]:
    """The state of each channel's first delivery, by label or name."""
    rows = server.client("audit", "auditor").get(f"/confirm/{request_id}/deliveries").json()["deliveries"]
    return {row.get("label", row["channel"]): row["state"] for row in reversed(rows)}


def waits(server: Running, request_id: str) -> dict[str, str]:
    """For what each delivery waits, by label or name."""
    rows = server.client("audit", "auditor").get(f"/confirm/{request_id}/deliveries").json()["deliveries"]
    return {row.get("label", row["channel"]): row["waits"] for row in rows if "waits" in row}


def begin_at_midnight(push: PushServer) -> ManualClock:
    """Return a clock that stands at midnight in Berlin, for a service and its push service."""
    clock = ManualClock()
    push.clock = lambda: clock.wall_s
    clock.wall_s = 1_790_028_000.0
    return clock


def test_the_example_of_rfc_8291_is_encrypted_to_the_same_bytes():
    private = ec.derive_private_key(
        int.from_bytes(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big"), ec.SECP256R1()
    )
    point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    keys = point, "BTBZMqHH6r4Tts7J_aSIgg"
    sealed = encrypt_with(
        b"When I grow up, I want to be a watermelon", keys, private, decode("DGv6ra1nlYgDCS1FRnbzlw")
    )
    assert encode(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8w"
        "EqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.slow
def test_a_small_request_is_approved_on_the_notification_and_its_delivery_is_known(server, push):
    ann = server.signed_in("ann")
    phone = subscribe(ann, push)
    request_id = ask(server)
    message = shown(push, phone, request_id, is_open=True)
    assert message["title"] == "Approval needed: restart" and '{ "unit": "web" }' in message["body"]
    push.wait(lambda: deliveries(server, request_id) == {"phone": "sent"}, "that it was accepted")
    assert server.agent.get("/metrics").text.count("whet_confirm_unacknowledged_requests 1\n") == 1
    assert acknowledge(ann, message) == 204 == acknowledge(ann, message)
    assert deliveries(server, request_id) == {"phone": "delivered"}
    assert server.agent.get("/metrics").text.count("whet_confirm_unacknowledged_requests 0\n") == 1
    answer = press(ann, message, "approve")
    assert answer.status_code == 200 and "restart was approved by ann" in answer.json()["text"]
    assert acknowledge(ann, message, "seen") == 204
    assert deliveries(server, request_id) == {"phone": "seen"}
    shown(push, phone, request_id, is_open=None)  # the outcome takes the place of the request
    assert server.agent.get(f"/confirm/{request_id}").json()["resolved_by"] == "ann"
    kinds = server.kinds(request_id)
    assert kinds.count("delivered") == kinds.count("seen") == kinds.count("decided") == 1
    assert push.headers[0]["topic"] == request_id and push.headers[0]["urgency"] == "high"


@pytest.mark.slow
def test_a_request_that_could_be_granted_for_a_while_has_the_two_plain_buttons(tmp_path, push):
    policy = '[[rules]]\naction = "*"\neffect = "ask"\ngrants = ["hour", "times"]\n'
    with Running(tmp_path, private_callbacks=True, policy=policy) as server:
        server.agent = server.client("submit", "agent")
        ann = server.signed_in("ann")
        phone = subscribe(ann, push)
        request_id = ask(server)
        message = shown(push, phone, request_id, is_open=True)
        assert [button["action"] for button in message["actions"]] == ["approve", "deny"]
        assert press(ann, message, "deny").json()["text"].startswith("restart was denied by ann")


@pytest.mark.slow
def test_what_is_high_risk_or_not_shown_whole_has_no_button_that_decides(server, push):
    phone = subscribe(server.signed_in("ann"), push)
    for fields in (
        {"action": "deploy_production"},
        {"details": {"text": "x" * 300}},
        {"details": {"lines": list(range(9)), "text": "é" * 200}},
        {"details": {"api_key": "sk-1234567890abcdef"}},
        {"description": "Delete p\u0430ypal"},
    ):
        message = shown(push, phone, ask(server, **fields), is_open=True)
        assert [button["action"] for button in message["actions"]] == ["open"], fields
        assert message["path"].startswith("/r/")


@pytest.mark.slow
def test_a_press_or_receipt_of_another_person_device_or_version_is_refused(server, push):
    ann, bob = server.signed_in("ann"), server.signed_in("bob")
    phone, other = subscribe(ann, push), subscribe(bob, push)
    request_id = ask(server, accepts_edits=True)
    message, theirs = shown(push, phone, request_id), shown(push, other, request_id)
    assert press(server.page(), message, "approve").status_code == 401  # nobody is signed in
    assert press(bob, message, "approve").status_code == 403
    mixed = {**message, "actions": theirs["actions"]}
    assert press(ann, mixed, "approve").status_code in (404, 409)
    foreign = server.page()
    del foreign.headers["origin"]
    foreign.headers["cookie"] = "; ".join(f"{k}={v}" for k, v in ann.cookies.items())
    assert press(foreign, message, "approve").status_code == 401
    assert acknowledge(ann, {**message, "receipts": theirs["receipts"]}) == 403
    assert acknowledge(ann, {**message, "receipts": {"delivered": message["receipts"]["seen"]}}) == 403
    assert acknowledge(ann, {**message, "device": "000000000000"}) == 404
    bearer = {"authorization": f"Bearer {server.token('approve', 'carol')}"}
    digest = server.stored(request_id).digest
    edit = {"digest": digest, "details": {"unit": "db"}}
    assert server.client().post(f"/confirm/{request_id}/amend", json=edit, headers=bearer).status_code == 200
    assert press(ann, message, "approve").status_code == 409  # the button is for what it was before
    assert server.stored(request_id).is_pending
    newer = push.wait(
        lambda: phone.shown[request_id] if phone.shown[request_id] != message else None, "the new version"
    )
    assert "db" in newer["body"] and press(ann, newer, "approve").json()["text"].startswith("restart was")


@pytest.mark.slow
def test_a_revoked_token_a_removed_device_and_an_ended_subscription_get_nothing_more(server, push):
    ann, bob = server.signed_in("ann"), server.signed_in("bob")
    kept, gone, removed = (
        subscribe(bob, push, "kept"),
        subscribe(ann, push, "gone"),
        subscribe(bob, push, "removed"),
    )
    device_id = server.rows("SELECT id FROM devices WHERE label = 'removed'")[0][0]
    assert change(ann, do="remove", device=device_id).status_code == 400  # bob's, not ann's
    assert change(bob, do="remove", device=device_id).status_code == 303
    push.phones = {number: phone for number, phone in push.phones.items() if phone is not gone}
    first = ask(server)
    shown(push, kept, first)
    push.wait(lambda: not server.rows("SELECT 1 FROM devices WHERE label = 'gone'"), "that it was removed")
    assert "answered 410" in server.rows("SELECT data FROM events WHERE kind = 'device_removed'")[-1][0]
    token_id = server.rows("SELECT account_key FROM devices WHERE label = 'kept'")[0][0]
    server.change(lambda tx: tokens.revoke(tx, token_id, by="admin"))
    server.signed_in("carol")
    second = ask(server)
    push.wait(lambda: server.rows("SELECT 1 FROM deliveries WHERE request_id = ?", second), "the log")
    assert second not in kept.shown and not removed.messages and not gone.messages
    assert server.agent.get("/health").json()["unreached_count"] == 1


@pytest.mark.slow
def test_the_next_channel_is_told_only_if_no_device_acknowledges(tmp_path, push):
    with Receiver() as hook:
        channels = tmp_path / "channels.toml"
        channels.write_text(channel("webhook", url=hook.url, after_s=60))
        clock = ManualClock()
        push.clock = lambda: clock.wall_s
        more = {"channels": channels, "secrets": {"CONFIRMATION_WEBHOOK_SECRET": SECRET}}
        with Running(tmp_path, private_callbacks=True, clock=clock, **more) as server:
            server.agent = server.client("submit", "agent")
            alone = ask(server)  # no device: at once
            hook.wait(lambda: len(hook.got) == 1, "the first")
            ann = server.signed_in("ann")
            phone = subscribe(ann, push)
            answered, silent = ask(server), ask(server)
            acknowledge(ann, shown(push, phone, answered))
            shown(push, phone, silent)
            assert len(hook.got) == 1
            assert waits(server, silent) == {"webhook": "waits for phone until 14:14:20 UTC"}
            clock.pass_by(61)
            hook.wait(lambda: len(hook.got) == 2, "the second")
            told = [json.loads(body)["data"]["request_id"] for _, body in hook.got]
            assert told == [alone, silent]
            push.wait(lambda: deliveries(server, answered)["webhook"] == "dropped", "that it was not needed")
            push.phones.clear()  # every device is gone: the next channel does not wait
            hopeless = ask(server)
            hook.wait(lambda: len(hook.got) == 3, "the third")
            assert json.loads(hook.got[2][1])["data"]["request_id"] == hopeless


@pytest.mark.slow
def test_in_quiet_hours_a_device_waits_and_is_told_what_still_waits_then(tmp_path, push):
    clock = begin_at_midnight(push)
    policy = '[[rules]]\naction = "*"\neffect = "ask"\nmax_timeout_s = 86400\n'
    with Running(tmp_path, private_callbacks=True, clock=clock, policy=policy, rate=1000) as server:
        server.agent = server.client("submit", "agent")
        ann = server.signed_in("ann")
        asleep, awake = subscribe(ann, push, "asleep"), subscribe(ann, push, "awake")
        device_id = server.rows("SELECT id FROM devices WHERE label = 'asleep'")[0][0]
        quiet = {"do": "quiet", "device": device_id, "quiet": "22:00-07:00", "timezone": "Europe/Berlin"}
        assert change(ann, **quiet).status_code == 303
        assert change(ann, **{**quiet, "quiet": "late"}).status_code == 400
        short, long = ask(server), ask(server, timeout_seconds=80_000)
        for request_id in (short, long):
            shown(push, awake, request_id)
        assert not asleep.messages and deliveries(server, long)["asleep"] == "queued"
        assert "waits: quiet hours until 07:00 Europe/Berlin" in ann.get(f"/r/{long}").text
        assert waits(server, long) == {"asleep": "waits: quiet hours until 07:00 Europe/Berlin"}
        clock.pass_by(8 * 3600 + 21 * 60)
        shown(push, asleep, long)
        assert short not in asleep.shown


def test_what_waits_for_the_end_of_quiet_hours_is_sent_if_they_are_changed(tmp_path, push):
    clock = begin_at_midnight(push)
    with Running(tmp_path, private_callbacks=True, clock=clock) as server:
        server.agent = server.client("submit", "agent")
        ann = server.signed_in("ann")
        phone = subscribe(ann, push)
        device_id = server.rows("SELECT id FROM devices")[0][0]
        quiet = {"do": "quiet", "device": device_id, "timezone": "Europe/Berlin"}
        assert change(ann, **quiet, quiet="22:00-07:00").status_code == 303
        request = ask(server)
        wait_until(lambda: waits(server, request))
        assert waits(server, request) == {"phone": "waits: quiet hours until 07:00 Europe/Berlin"}
        assert change(ann, **quiet, quiet="23:00-06:00").status_code == 303
        assert waits(server, request) == {"phone": "waits: quiet hours until 06:00 Europe/Berlin"}
        assert change(ann, **quiet, quiet="").status_code == 303
        shown(push, phone, request)


@pytest.mark.slow
def test_a_push_service_that_fails_is_tried_again_and_one_inside_is_never_called(tmp_path, server, push):
    ann = server.signed_in("ann")
    phone = subscribe(ann, push)
    push.fail_next("push", (503, "later", {}), (429, "slowly", {"retry-after": "1"}))
    request_id = ask(server)
    shown(push, phone, request_id)
    assert len(phone.messages) == 1
    assert change(ann, do="trial", device=phone.shown[request_id]["device"]).status_code == 303
    assert phone.shown["trial"]["path"] == "/devices"
    with Running(tmp_path / "strict") as strict:  # without --allow-private-callbacks
        bob = strict.signed_in("bob")
        text = bob.get("/devices").text
        csrf, key = field_of(text, "csrf"), re.findall(r'data-key="([^"]+)"', text)
        inside = push.subscribe(key[0])
        secure = {**inside.subscription, "endpoint": inside.endpoint.replace("http:", "https:")}
        literals = ("127.0.0.1", "[::1]", "10.0.0.5", "169.254.1.1", "100.64.0.1", "2130706433", "0x7f.1")
        private = [({**secure, "endpoint": f"https://{host}/x"}, 400) for host in literals]
        secure["endpoint"] = secure["endpoint"].replace("127.0.0.1", "localhost")
        for subscription, status in ((inside.subscription, 400), *private, (secure, 303)):
            form = {"csrf": csrf, "do": "add", "subscription": json.dumps(subscription)}
            assert bob.post("/devices", data=form).status_code == status
        device_id = field_of(bob.get("/devices").text, "device")
        answer = change(bob, do="trial", device=device_id)
        assert answer.status_code == 400 and "is a private address" in answer.text and not inside.messages


def quiet_device(quiet: str) -> PushDevice:
    return PushDevice("d", "ann", "t", "phone", "https://e", "k", "s", quiet, "Europe/Berlin", 0.0)


@each(
    ("quiet", "clock", "left_min"),
    [
        ("", "23:00", 0),
        ("22:00-07:00", "21:59", 0),
        ("22:00-07:00", "22:00", 540),
        ("22:00-07:00", "06:59", 1),
        ("22:00-07:00", "07:00", 0),
        ("09:00-17:30", "12:00", 330),
        ("09:00-17:30", "17:30", 0),
    ],
)
def test_quiet_hours_end_when_they_say(quiet, clock, left_min):
    hour, minute = map(int, clock.split(":"))
    at_s = 1_789_941_600.0 + hour * 3600 + minute * 60  # midnight in Berlin, in summer
    assert quiet_left_s(quiet_device(quiet), at_s) == left_min * 60


@each(
    ("quiet", "zone"),
    [("7-8", "UTC"), ("24:00-07:00", "UTC"), ("07:00-07:00", "UTC"), ("", "../etc"), ("", "Mars/One")],
)
def test_what_is_no_quiet_time_is_refused(quiet, zone):
    with pytest.raises(ValueError, match=r"quiet hours|time zone"):
        check_quiet(quiet, zone)


@pytest.mark.slow
def test_a_browser_renews_the_subscription_of_its_device_which_keeps_its_name_and_messages(server, push):
    ann, bob = server.signed_in("ann"), server.signed_in("bob")
    old = subscribe(ann, push, "work phone")
    device = server.rows("SELECT id, label FROM devices")
    shown(push, old, ask(server))
    now = push.subscribe(re.findall(r'data-key="([^"]+)"', ann.get("/devices").text)[0])
    fields = {"before": old.subscription["endpoint"], "subscription": json.dumps(now.subscription)}
    assert server.page().post("/push/renew", data=fields).status_code == 401
    assert bob.post("/push/renew", data=fields).status_code == 400  # ann's, not bob's
    assert ann.post("/push/renew", data={**fields, "subscription": "{}"}).status_code == 400
    assert ann.post("/push/renew", data=fields).status_code == 204
    push.phones = {number: phone for number, phone in push.phones.items() if phone is not old}
    assert shown(push, now, ask(server))["device"] == device[0][0]
    assert server.rows("SELECT id, label FROM devices") == device
    assert ann.post("/push/renew", data=fields).status_code == 400  # once
    event = server.rows("SELECT data FROM events WHERE kind = 'device_changed'")[-1][0]
    assert "the browser renewed it" in event
