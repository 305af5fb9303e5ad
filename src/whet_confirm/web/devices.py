"""The page as an installable app: its manifest, its service worker and the devices that get push messages.

A device acknowledges a message with a code that only this message contained. A button of a notification
decides in the name of the person who is signed in on that device, like a button of the page.
"""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files

import msgspec
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, RedirectResponse, Response

from whet.contract.channels import SendFailed
from whet.contract.errors import NotFound
from whet.visible import visible
from whet.web.assets import Assets
from whet.web.bodies import BadForm, read_form
from whet.web.guard import has_origin
from whet.web.pages import SiteTemplates
from whet.web.sessions import Sessions, Visit
from whet_confirm.names import REQUEST_ID
from whet_confirm.notify.notice_text import build_trial
from whet_confirm.notify.notifier import ConfirmNotifier
from whet_confirm.notify.presses import apply_press, describe_end
from whet_confirm.push import devices
from whet_confirm.push.devices import PushDevice
from whet_confirm.records import Caller
from whet_confirm.service import ConfirmService
from whet_confirm.web import view
from whet_confirm.web.accounts import TokenAccounts
from whet_confirm.web.site import AccountPages

_WORKER_HEADERS = {"cache-control": "no-cache", "content-type": "text/javascript; charset=utf-8"}
_MAX_LABEL_CHARS = 60
_UNKNOWN = {"text": "This button belongs to no request that is known here."}


class _Keys(msgspec.Struct, frozen=True):
    p256dh: str
    auth: str


class _Subscription(msgspec.Struct, frozen=True):
    """A browser's push subscription, as `PushSubscription.toJSON()` returns it."""

    endpoint: str
    keys: _Keys


class DevicePages(AccountPages):
    """Lists, adds and removes a person's devices, and handles the requests of their service workers."""

    def __init__(
        self,
        service: ConfirmService,
        pages: SiteTemplates,
        accounts: TokenAccounts,
        notifier: ConfirmNotifier,
        sessions: Sessions,
    ) -> None:
        super().__init__(service, pages, accounts, notifier)
        self._sessions = sessions

    async def worker(self, request: Http) -> Response:
        """Return the service worker. It is at the site's root, so that its scope covers all pages."""
        script = await asyncio.to_thread((files("whet_confirm.web") / "static" / "worker.js").read_bytes)
        return Response(script, headers=_WORKER_HEADERS)

    async def show(self, request: Http, visit: Visit) -> Response:
        """Show the person's devices, and the button to add this one."""
        done = "A trial message was sent." if request.query_params.get("done") == "trial" else ""
        return await self._render(visit, done=done)

    async def change(self, request: Http, visit: Visit) -> Response:
        """Add or remove a device, send it a trial message, or set its quiet hours."""
        caller, form = self._accounts.caller_of(visit), request.state.form
        if caller.is_open or not caller.may("approve") or not caller.token_id:
            return await self._render(visit, "Only signed-in people who approve have devices.", 403)
        what, device_id = form.get("do", ""), form.get("device", "")
        try:
            if what == "add":
                await self._add(caller, form)
            elif what == "remove":
                name = caller.name
                await self._service.change(lambda tx: devices.remove(tx, device_id, by=name, owner=name))
            elif what == "quiet":
                hours = form.get("quiet", "").replace(" ", ""), form.get("timezone", "")
                await self._service.change(lambda tx: devices.set_quiet(tx, device_id, caller.name, hours))
            elif what == "trial":
                await self._send_trial(caller, device_id)
            else:
                raise ValueError("the form has no known action")
        except (ValueError, NotFound, SendFailed) as error:
            reason = error.reason if isinstance(error, SendFailed) else str(error)
            return await self._render(visit, f"Not done: {visible(reason, 300)}.", 400)
        return RedirectResponse(f"/devices{'?done=trial' if what == 'trial' else ''}", 303)

    async def receipt(self, request: Http) -> Response:
        """Record that a device showed a request, or that its person saw it."""
        from whet_confirm.push.message import is_receipt_code  # noqa: PLC0415 - with the first device

        try:
            form = await read_form(request)
        except BadForm as error:
            return JSONResponse({"error": str(error)}, error.status)
        request_id, kind = form.get("request", ""), form.get("receipt", "")
        device = self._find(form.get("device", ""))
        if device is None or kind not in ("delivered", "seen") or not REQUEST_ID.fullmatch(request_id):
            return JSONResponse({"error": "there is no such device or request"}, 404)
        receipt = "seen" if kind == "seen" else "delivered"
        names = (request_id, device.id)
        if not is_receipt_code(self._service.key, names, receipt, form.get("code", "")):
            return JSONResponse({"error": "this is not a receipt of a message to this device"}, 403)
        await self._service.change(lambda tx: devices.acknowledge(tx, request_id, device, receipt))
        return Response(status_code=204)

    async def press(self, request: Http) -> Response:
        """Decide by a notification's button, and answer with a line for the person."""
        try:
            form = await read_form(request)
        except BadForm as error:
            return JSONResponse({"error": str(error)}, error.status)
        if (caller := await self._find_caller(request)) is None:
            return JSONResponse({"text": "Not decided: sign in on this device first."}, 401)
        device = self._find(form.get("device", ""))
        if device is None or device.name != caller.name or not caller.may("approve"):
            return JSONResponse({"text": f"Not decided: this is not a device of {caller.name}."}, 403)
        buttons = self._notifier.devices.buttons(device.channel)
        pressed = buttons.parse_press(form.get("press", ""))
        confirmation = None
        if pressed is not None and REQUEST_ID.fullmatch(pressed.request_id):
            confirmation = self._service.get(pressed.request_id)
        if pressed is None or confirmation is None:
            return JSONResponse(_UNKNOWN, 404)
        if not buttons.is_ours(pressed, confirmation.digest):
            if not confirmation.is_pending:
                return JSONResponse({"text": describe_end(confirmation)})
            data: dict[str, object] = {
                "channel": device.channel,
                "why": "the button does not match the request",
            }
            await self._service.record("press_refused", confirmation.id, caller.name, data)
            return JSONResponse({"text": "Not decided: the request was changed. Open it."}, 409)
        text = await apply_press(self._service, caller, confirmation, buttons.meaning_of(pressed))
        return JSONResponse({"text": text})

    async def renew(self, request: Http) -> Response:
        """Replace a device's push subscription with the new one that the browser issued."""
        if (caller := await self._find_caller(request)) is None:
            return JSONResponse({"error": "sign in on this device first"}, 401)
        try:
            form = await read_form(request)
            subscription = self._read_subscription(form)
            old_endpoint = form.get("before", "")
            await self._service.change(lambda tx: devices.renew(tx, caller.name, old_endpoint, subscription))
        except BadForm as error:
            return JSONResponse({"error": str(error)}, error.status)
        except (ValueError, NotFound) as error:
            return JSONResponse({"error": str(error)}, 400)
        return Response(status_code=204)

    async def _find_caller(self, request: Http) -> Caller | None:
        """Return the person who is signed in in this browser, or None.

        Also None if the request comes from another site.
        """
        visit = await self._sessions.find_visit(request)
        return None if visit is None or not has_origin(request.headers) else self._accounts.caller_of(visit)

    def _read_subscription(self, form: dict[str, str]) -> tuple[str, str, str]:
        """Return the endpoint, public key and secret of a browser's subscription. Raises ValueError."""
        from whet_confirm.push.channel import check_endpoint  # noqa: PLC0415 - with the first device
        from whet_confirm.push.encryption import check_subscription  # noqa: PLC0415

        try:
            subscription = msgspec.json.decode(form.get("subscription", ""), type=_Subscription)
        except msgspec.DecodeError as error:
            raise ValueError("the browser sent no subscription") from error
        keys = subscription.keys
        check_endpoint(subscription.endpoint, self._notifier.devices.settings)
        check_subscription(keys.p256dh, keys.auth)
        return subscription.endpoint, keys.p256dh, keys.auth

    async def _add(self, caller: Caller, form: dict[str, str]) -> None:
        """Store this browser's subscription. Raises ValueError."""
        endpoint, public_key, secret = self._read_subscription(form)
        zone = form.get("timezone", "")
        devices.check_quiet("", zone)
        label = visible(form.get("label", "").strip(), _MAX_LABEL_CHARS)[:_MAX_LABEL_CHARS] or "a device"
        device = PushDevice(
            id="", name=caller.name, account_key=caller.token_id, label=label, endpoint=endpoint,
            public_key=public_key, secret=secret, quiet="", timezone=zone, created_at=0.0,
        )  # fmt: skip
        await self._service.change(lambda tx: devices.add(tx, caller, device))

    async def _send_trial(self, caller: Caller, device_id: str) -> None:
        """Send a trial message. Raises SendFailed or NotFound."""
        device = self._find(device_id)
        if device is None or device.name != caller.name:
            raise NotFound(f"there is no device {device_id}")
        notice = build_trial("", caller.name, self._service.timeline.now_s())
        await self._notifier.devices.open(device).send(notice)

    def _find(self, device_id: str) -> PushDevice | None:
        return self._service.database.read_now(lambda db: devices.find(db, device_id))

    async def _render(self, visit: Visit, problem: str = "", status: int = 200, done: str = "") -> Response:
        caller = self._accounts.caller_of(visit)
        rows = self._service.database.read_now(lambda db: devices.list_devices(db, caller.name))
        received = self._service.database.read_now(
            lambda db: {device.id: devices.last_receipt(db, device) for device in rows}
        )
        may_add = caller.may("approve") and not caller.is_open and bool(caller.token_id)
        values = {
            "devices": [
                dict(
                    id=device.id, label=device.label, quiet=device.quiet, timezone=device.timezone or "UTC",
                    added=view.format_moment(device.created_at),
                    received=view.format_moment(received[device.id]),
                )
                for device in rows
            ],
            "public_key": self._notifier.devices.sender.identity.public_key if may_add else "",
            "problem": problem,
            "done": done,
        }  # fmt: skip
        return self._pages.answer("devices.html", status, visit=visit, **values)


def make_manifest(assets: Assets) -> bytes:
    """Return the web app manifest."""
    icons = [
        {
            "src": assets.url(f"icon-{size}.png"),
            "sizes": f"{size}x{size}",
            "type": "image/png",
            "purpose": use,
        }
        for size in (192, 512)
        for use in ("any", "maskable")
    ]
    manifest = {
        "id": "/",
        "name": "Whet confirmations",
        "short_name": "Confirm",
        "description": "Approve or deny what agents ask for.",
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": "#f5f6f8",
        "theme_color": "#1f4ed8",
        "icons": icons,
    }
    return json.dumps(manifest).encode()
