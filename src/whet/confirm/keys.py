"""The service's ed25519 key: signs checkpoints of the audit log, grants, and webhooks.

A second key is made of it, which only the service has: its codes stand where a signature follows soon.

The private key is a file of mode 0600. A database that has signed checkpoints and no key is not served:
a new key would make the old signatures look like somebody else's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from whet.config.paths import mode_of, read_small, replace
from whet.contract.errors import ConfigError

_PREFIX = "whet-ed25519-"
_CODES = b"whet seal code"


class PublicKey:
    """Checks what the service signed; needs no secret."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.id: str = hashlib.sha256(raw).hexdigest()[:16]
        self._key = Ed25519PublicKey.from_public_bytes(raw)

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read the text form (base64url of the 32 bytes). Raises ConfigError."""
        try:
            return cls(unbase64(text.strip()))
        except ValueError as error:
            raise ConfigError(f"not an ed25519 public key: {text.strip()[:60]!r}") from error

    @property
    def text(self) -> str:
        """The text form: base64url without padding."""
        return base64url(self.raw)

    def is_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether `signature` over `message` is this key's."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey(PublicKey):
    """Signs, and checks what it signed; `public` is the half that anybody may have."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        super().__init__(self._private.public_key().public_bytes_raw())
        self.public: PublicKey = PublicKey(self.raw)
        self._secret = hashlib.blake2b(key=seed, digest_size=32, person=_CODES).digest()

    @classmethod
    def new(cls) -> SigningKey:
        """Make one that nobody had before."""
        return cls(os.urandom(32))

    def write(self, path: Path) -> None:
        """Write it to its file (0600), in place of what was there."""
        replace(path, f"{_PREFIX}{base64url(self._seed)}\n", mode=0o600)

    def sign(self, message: bytes) -> bytes:
        """Give the 64 bytes of the signature."""
        return self._private.sign(message)

    def code(self, message: bytes) -> bytes:
        """Give the 32 bytes that only the holder of this key can make, or check: a fiftieth of a
        signature's work."""
        return hashlib.blake2b(message, key=self._secret, digest_size=32).digest()

    def is_coded(self, message: bytes, code: bytes) -> bool:
        """Whether `code` over `message` is this key's."""
        return hmac.compare_digest(self.code(message), code)


def load_key(path: Path, *, may_make: bool) -> SigningKey:
    """Read the key file, or make it (0600) where there is none and `may_make`. Raises ConfigError with what
    to do: key gone, readable by others, not a key."""
    text = read_small(path)
    if text is None:
        if not may_make:
            raise ConfigError(
                f"the signing key {path} is missing, and the audit log was signed with it",
                hint="restore it from your backup, or start with --new-key to sign with a new one",
            )
        made = SigningKey.new()
        made.write(path)
        return made
    mode = mode_of(path) or 0
    if mode & 0o077:
        raise ConfigError(
            f"the signing key {path} can be read by others (mode {mode:04o})",
            hint=f"chmod 600 {path}; if somebody may have copied it, move it away and start with --new-key",
        )
    try:
        seed = unbase64(text.strip().removeprefix(_PREFIX))
    except ValueError:
        seed = b""
    if not text.startswith(_PREFIX) or len(seed) != 32:
        raise ConfigError(f"{path} is not a signing key", hint="restore it from your backup")
    return SigningKey(seed)


def base64url(raw: bytes) -> str:
    """Encode without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unbase64(text: str) -> bytes:
    """Decode base64url without padding, as `base64url` writes it and in no other way. Raises ValueError."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if base64url(raw) != text:
        raise ValueError("not base64url as it is written")
    return raw
