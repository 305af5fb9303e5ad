"""Sign webhooks according to Standard Webhooks 1.0."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

from whet.contract.errors import ConfigError

_SECRET_PREFIX = "whsec_"


def sign_headers(key: bytes, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the three headers of a signed message."""
    mac = hmac.digest(key, f"{message_id}.{at_s}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{b64encode(mac).decode()}",
    }


def webhook_key(name: str, secret: str) -> bytes:
    """Decode a `whsec_` secret of 24 to 64 bytes. Raises ConfigError."""
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise ConfigError(
            f"channel {name}: the webhook's secret is not usable",
            hint="`whsec_` and 24 to 64 bytes in base64, e.g. whsec_$(openssl rand -base64 32)",
        )
    return key
