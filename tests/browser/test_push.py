"""The page as an app in a real Chromium: installed, subscribed, notified, acknowledged, decided."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.browser.chromium import Browser, Page
from tests.browser.conftest import Daemon, sign_in
from tests.confirm.vendors.push import Phone, PushServer

pytestmark = pytest.mark.slow
# Chromium's own push service is on the internet. The page gets a subscription to ours instead.
_SUBSCRIBE = """
(() => {
  const made = %s;
  PushManager.prototype.subscribe = async () => ({ toJSON: () => made });
  PushManager.prototype.getSubscription = async () => null;
})();
"""
_SHOWN = (
    "navigator.serviceWorker.ready.then((it) => it.getNotifications()).then((all) => all.map((shown) =>"
    " ({ title: shown.title, body: shown.body, tag: shown.tag, actions: shown.actions.length })))"
)


@pytest.fixture
def push():
    with PushServer() as server:
        yield server


@pytest.fixture
def phone_daemon(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("home"), "--rate-limit", "1000", "--allow-private-callbacks")
    yield daemon
    daemon.stop()


class Installed:
    """The page on a phone-sized screen, with notifications allowed and this browser subscribed."""

    def __init__(self, page: Page, daemon: Daemon, push: PushServer) -> None:
        self.page, self.daemon, self.push = page, daemon, push
        page.shape(390, 844, is_phone=True)
        context = page.call("Target.getTargetInfo")["targetInfo"]["browserContextId"]
        grant = {"permissions": ["notifications"], "origin": daemon.url, "browserContextId": context}
        page.call("Browser.grantPermissions", **grant)
        sign_in(page, daemon, "/devices")
        key = page.eval("document.querySelector('#subscribe').dataset.key")
        self.phone: Phone = push.subscribe(key)
        script = _SUBSCRIBE % json.dumps(self.phone.subscription)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.open(daemon.url + "/devices")
        page.call("ServiceWorker.enable")
        with page.loading():
            page.click("#add")
        assert "nothing delivered yet" in page.text()

    def deliver(self, request_id: str, **expected: Any) -> None:
        """Hand the newest message about a request, which the push service decrypted, to the browser."""

        def find() -> dict[str, Any] | None:
            message = self.phone.shown.get(request_id)
            return message if message and expected.items() <= message.items() else None

        message = self.push.wait(find, "the message")
        target = {"origin": self.daemon.url, "registrationId": self._version()["registrationId"]}
        self.page.call("ServiceWorker.deliverPushMessage", **target, data=json.dumps(message))

    def shown(self, code: str) -> dict[str, Any]:
        """Wait until a notification fits the code, in which `n` is its name."""
        self.page.until(f"(await {_SHOWN}).some((n) => {code})")
        return next(iter(self.page.eval(_SHOWN)))

    def press(self, browser: Browser, action: str) -> None:
        """Press a button of the notification. No DevTools call does that, so the worker gets the event."""
        # Such an event can't prolong the worker's life, which the open DevTools session does here.
        browser.eval_worker(
            self._version()["targetId"],
            "registration.getNotifications().then(([shown]) => { self.dispatchEvent(new NotificationEvent("
            f"'notificationclick', {{ notification: shown, action: {json.dumps(action)} }})); }})",
        )

    def replace_subscription(self, browser: Browser) -> None:
        """Give the browser another subscription. No DevTools call does that, so the worker gets the event."""
        event = {"oldSubscription": {"endpoint": self.phone.subscription["endpoint"]}}
        self.phone = self.push.subscribe(self.page.eval("document.querySelector('#subscribe').dataset.key"))
        browser.eval_worker(
            self._version()["targetId"],
            f"const event = Object.assign(new Event('pushsubscriptionchange'), {json.dumps(event)});"
            f"event.newSubscription = {{ toJSON: () => ({json.dumps(self.phone.subscription)}) }};"
            "new Promise((done) => { event.waitUntil = (work) => work.then(done);"
            " self.dispatchEvent(event); })",
        )

    def state(self, request_id: str) -> str:
        bearer = {"authorization": f"Bearer {self.daemon.token()}"}
        rows = self.daemon.agent.get(f"/confirm/{request_id}/deliveries", headers=bearer).json()
        return str(rows["deliveries"][0]["state"])

    def _version(self) -> dict[str, Any]:
        updated = "ServiceWorker.workerVersionUpdated"
        updates = [event["params"] for event in self.page.events if event["method"] == updated]
        return [version for update in updates for version in update["versions"]][-1]


def test_the_page_can_be_installed(page, phone_daemon):
    sign_in(page, phone_daemon, "/devices")
    found = page.call("Page.getAppManifest")
    assert found["errors"] == [], found
    manifest = json.loads(found["data"])
    assert manifest["display"] == "standalone" and manifest["start_url"] == "/"
    for icon in manifest["icons"]:
        width = page.eval(
            "(async () => { const image = new Image();"
            f" image.src = {json.dumps(icon['src'])}; await image.decode(); return image.naturalWidth; }})()"
        )
        assert icon["sizes"] == f"{width}x{width}"
    errors = page.call("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [error["errorId"] for error in errors] in ([], ["in-incognito"])  # a private tab installs nothing
    assert page.problems() == []


def test_from_the_first_start_to_an_approval_on_a_notification(page, chromium, phone_daemon, push):
    began = time.monotonic()
    phone = Installed(page, phone_daemon, push)
    request_id = phone_daemon.submit(action="restart", description="Restart", details={"unit": "web"})
    phone.deliver(request_id, is_open=True)
    notification = phone.shown("n.actions === 2")
    assert notification["title"] == "Approval needed: restart" and notification["tag"] == request_id
    assert notification["body"] == ('agent asks, in its own words:\n| Restart\n| { "unit": "web" }')
    push.wait(lambda: phone.state(request_id) == "delivered", "the receipt")
    phone.press(chromium, "approve")
    phone.shown("n.body.startsWith('restart was approved by ')")
    print(f"{time.monotonic() - began:.1f} s from the empty sign-in page to the approval on a notification")
    assert phone_daemon.status(request_id)["status"] == "approved"
    push.wait(lambda: phone.state(request_id) == "seen", "the receipt of the press")
    phone.deliver(request_id, title="Approved: restart")
    assert phone.shown("n.title === 'Approved: restart'")["actions"] == 0
    assert len(page.eval(_SHOWN)) == 1  # all under one tag
    page.open(f"{phone_daemon.url}/r/{request_id}")
    assert "seen on the device" in page.text()


def test_high_risk_opens_the_page_and_a_signed_out_press_decides_nothing(page, chromium, phone_daemon, push):
    phone = Installed(page, phone_daemon, push)
    risky = phone_daemon.submit(action="deploy_production")
    phone.deliver(risky)
    assert phone.shown("n.title.startsWith('HIGH RISK: ')")["actions"] == 1
    page.eval(_SHOWN.replace("all.map", "all.forEach((it) => it.close()) || all.map"))
    small = phone_daemon.submit(action="restart", description="Restart", details={})
    phone.deliver(small)
    phone.shown("n.actions === 2")
    page.call("Network.clearBrowserCookies")
    phone.press(chromium, "approve")
    phone.shown("n.body.startsWith('Not decided: sign in on this device first.')")
    assert phone_daemon.status(small)["status"] == "pending"


def test_the_risk_rating_stays_within_a_phone(page, phone_daemon):
    request_id = phone_daemon.submit(action="tool:Bash", details={"command": "touch ran"})
    page.shape(390, 844, is_phone=True)
    sign_in(page, phone_daemon, f"/r/{request_id}")
    assert "found nothing" in page.text()
    wide = "[...document.querySelectorAll('body *')].filter((it) => it.getBoundingClientRect().right > 390.5)"
    assert page.eval(f"{wide}.map((it) => it.className)") == []


def test_a_subscription_that_is_replaced_goes_on_getting_requests(page, chromium, phone_daemon, push):
    phone = Installed(page, phone_daemon, push)
    old = phone.phone
    phone.replace_subscription(chromium)
    request_id = phone_daemon.submit(action="restart", description="Restart", details={"unit": "web"})
    phone.deliver(request_id, is_open=True)
    assert request_id not in old.shown
