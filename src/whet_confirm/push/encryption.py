"""Encrypt a push message for one device (RFC 8291), and identify this service to its push service (RFC 8292).

Both use the curve P-256. The primitives are those of `cryptography`; the two formats are a few lines each.
"""

from __future__ import annotations

import os

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from whet_confirm.keys import SigningKey, base64url, unbase64

_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_RECORD_BYTES = 4096  # one record holds the whole message
MAX_MESSAGE_BYTES = _RECORD_BYTES - 103  # without header, padding and authentication tag
_TOKEN_S = 12 * 3600  # a push service accepts at most 24 hours
_HEADER = base64url(b'{"typ":"JWT","alg":"ES256"}')


def check_subscription(public_key: str, secret: str) -> None:
    """Raise ValueError if these are not the keys that a browser makes for a subscription."""
    ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, unbase64(public_key))
    if len(unbase64(secret)) != 16:
        raise ValueError("the subscription's secret does not have 16 bytes")


def encrypt_message(message: bytes, public_key: str, secret: str) -> bytes:
    """Return a message in the content coding aes128gcm, which only the device with these keys can read."""
    private, salt = ec.generate_private_key(_CURVE), os.urandom(16)
    return encrypt_with(message, (public_key, secret), private, salt)


def encrypt_with(
    message: bytes, keys: tuple[str, str], private: ec.EllipticCurvePrivateKey, salt: bytes
) -> bytes:
    """Encrypt with a key pair and salt that must never be reused. `keys` are the device's key and secret."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, more than {MAX_MESSAGE_BYTES}")
    theirs, secret = unbase64(keys[0]), unbase64(keys[1])
    ours = _encode_point(private.public_key())
    shared = private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, theirs))
    seed = _derive(secret, shared, b"WebPush: info\0" + theirs + ours, 32)
    key = _derive(salt, seed, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, seed, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_BYTES.to_bytes(4, "big") + bytes((len(ours),)) + ours
    return header + AESGCM(key).encrypt(nonce, message + b"\x02", None)


class ServiceIdentity:
    """The key pair that identifies this service to push services, derived from its signing key."""

    def __init__(self, key: SigningKey) -> None:
        # The signature is deterministic and as secret as its key, so a second key can be derived from it.
        number = int.from_bytes(key.sign(b"whet-push/1"), "big")
        self._private = ec.derive_private_key(number % (_ORDER - 1) + 1, _CURVE)
        self.public_key: str = base64url(_encode_point(self._private.public_key()))

    def authorize(self, origin: str, contact: str, now_s: float) -> str:
        """Return the Authorization header for a push service at `origin`.

        `contact` is a mailto: or https: address of the operator, or empty.
        """
        claims: dict[str, object] = {"aud": origin, "exp": int(now_s) + _TOKEN_S}
        if contact:
            claims["sub"] = contact
        signed = f"{_HEADER}.{base64url(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return f"vapid t={signed}.{signature}, k={self.public_key}"


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def _encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
