"""A small provider of identities on loopback that speaks OpenID Connect: discovery, keys, code with PKCE.

Tokens are made by hand here, so that what checks them is checked by something else.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "whet-confirm", "between-us"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Its users, and knobs that make it lie. Use as a context manager."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.kid = "first"
        self.user: dict[str, Any] = {}
        self.lies: dict[str, Any] = {}
        self.head: dict[str, Any] = {}
        self.signs_with = self.key
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        handler = type("Handler", (_Handler,), {"provider": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Provider:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        size = (numbers.n.bit_length() + 7) // 8
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.kid,
            "n": b64(numbers.n.to_bytes(size, "big")),
            "e": b64(numbers.e.to_bytes(3, "big")),
        }
        return {"keys": [key]}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent, somebody having signed in."""
        assert asked["response_type"] == "code" and asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256" and "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        challenge = b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if authorization != expected:
            return 401, {"error": "invalid_client"}
        given = {"code_challenge": challenge, "redirect_uri": form.get("redirect_uri")}
        if asked is None or not given.items() <= asked.items():
            return 400, {"error": "invalid_grant"}
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now_s,
            "exp": now_s + 300,
            "nonce": asked["nonce"],
        }
        token = self.signed({**claims, **self.user, **self.lies})
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": token}

    def signed(self, claims: dict[str, Any]) -> str:
        head = {"alg": "RS256", "kid": self.kid, "typ": "JWT", **self.head}
        text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
        if head["alg"] == "none":
            return f"{text}."
        signature = self.signs_with.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{b64(signature)}"


class _Handler(http.server.BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        provider = self.provider
        provider.asked.append(parts.path)
        if parts.path == "/.well-known/openid-configuration":
            self._json(
                200,
                {
                    "issuer": provider.issuer,
                    "authorization_endpoint": f"{provider.issuer}/authorize",
                    "token_endpoint": f"{provider.issuer}/token",
                    "jwks_uri": f"{provider.issuer}/keys",
                },
            )
        elif parts.path == "/keys":
            self._json(200, provider.keys())
        elif parts.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.send_response(302)
            self.send_header("location", provider.authorize(asked))
            self.send_header("content-length", "0")
            self.end_headers()
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._json(*self.provider.token(form, self.headers.get("authorization", "")))

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
