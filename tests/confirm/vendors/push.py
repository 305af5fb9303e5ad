"""A push service of our own: it speaks RFC 8030, checks VAPID (RFC 8292), and its devices read RFC 8291."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.vendors.host import Host

_CURVE = ec.SECP256R1()


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Phone:
    """One subscribed browser: it reads messages with its own keys and holds what it shows, by tag."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._private = ec.generate_private_key(_CURVE)
        self._secret = secrets.token_bytes(16)
        self.messages: list[dict[str, Any]] = []
        self.shown: dict[str, dict[str, Any]] = {}

    @property
    def subscription(self) -> dict[str, Any]:
        """What `PushSubscription.toJSON()` returns."""
        keys = {"p256dh": encode(self.point), "auth": encode(self._secret)}
        return {"endpoint": self.endpoint, "keys": keys}

    @property
    def point(self) -> bytes:
        return self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def receive(self, body: bytes) -> dict[str, Any]:
        """Decrypt a message as RFC 8291 says, and show it in the place of an older one with its tag."""
        salt, size, end = body[:16], int.from_bytes(body[16:20], "big"), 21 + body[20]
        theirs, sealed = body[21:end], body[end:]
        assert len(sealed) <= size and len(body) <= 4096
        point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, theirs)
        shared = self._private.exchange(ec.ECDH(), point)
        info = b"WebPush: info\0" + self.point + theirs
        seed = HKDF(SHA256(), 32, self._secret, info).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(seed)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(seed)
        plain = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert plain[-1:] == b"\x02"
        message: dict[str, Any] = json.loads(plain[:-1])
        self.messages.append(message)
        self.shown[message["request"] or "trial"] = message
        return message


class PushServer(Host):
    """Holds subscriptions, and hands each message to its phone at once."""

    def __init__(self) -> None:
        super().__init__()
        self.phones: dict[str, Phone] = {}
        self.public_key = ""
        self.headers: list[dict[str, str]] = []
        self.clock: Callable[[], float] = time.time

    def subscribe(self, public_key: str) -> Phone:
        self.public_key = public_key
        number = secrets.token_hex(8)
        phone = Phone(f"{self.url}/push/{number}")
        self.phones[number] = phone
        return phone

    def app(self) -> ASGIApp:
        async def push(request: Request) -> Response:
            body = await request.body()
            phone = self.phones.get(request.path_params["number"])
            if phone is None:
                return Response("no such subscription", 410)
            fault = self.next_fault("push")
            if fault is not None:
                status, text, headers = fault
                return Response(text, status, headers)
            if problem := self._problem(request):
                return Response(problem, 400)
            self.headers.append(dict(request.headers))
            self.note(lambda: phone.receive(body))
            return Response(
                status_code=201, headers={"location": f"{self.url}/message/{secrets.token_hex(4)}"}
            )

        return Starlette(routes=[Route("/push/{number}", push, methods=["POST"])])

    def _problem(self, request: Request) -> str:
        """Refuse a message as real push services do."""
        headers = request.headers
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        if scheme != "vapid" or fields["k"] != self.public_key:
            return "the key is not the subscription's"
        point = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, decode(fields["k"]))
        options: Any = {"verify_exp": False}  # by this server's own clock
        claims = jwt.decode(fields["t"], point, ["ES256"], options=options, audience=self.url)
        if not 0 < claims["exp"] - self.clock() <= 24 * 3600:
            return "the token has expired, or is valid for too long"
        if headers.get("content-encoding") != "aes128gcm" or not headers.get("ttl", "").isdecimal():
            return "content-encoding and ttl are required"
        if headers.get("urgency", "normal") not in ("very-low", "low", "normal", "high"):
            return "no such urgency"
        return "topic is too long" if len(headers.get("topic", "")) > 32 else ""


def acknowledge(page: httpx2.Client, message: dict[str, Any], receipt: str = "delivered") -> int:
    """Send a receipt as the service worker does; gives the status."""
    fields = {
        "device": message["device"],
        "request": message["request"],
        "receipt": receipt,
        "code": message["receipts"][receipt],
    }
    return page.post("/push/receipt", data=fields).status_code


def press(page: httpx2.Client, message: dict[str, Any], action: str) -> httpx2.Response:
    """Press a button of a notification, as the service worker does."""
    chosen = next(button for button in message["actions"] if button["action"] == action)
    return page.post("/push/press", data={"device": message["device"], "press": chosen["press"]})
