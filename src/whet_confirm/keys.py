"""The service's ed25519 key: signs checkpoints of the audit log, grants, and webhooks.

A second, secret key is derived from it. It makes codes (MACs), which stand in until a signature follows.

The private key is a file of mode 0600. If a database has signed checkpoints but the key is missing, the
service refuses to start: with a new key the old signatures would look like another signer's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from whet.config.paths import read_mode, read_small, replace_file
from whet.contract.errors import ConfigError

_PREFIX = "whet-ed25519-"
_CODES = b"whet seal code"


class PublicKey:
    """Verifies the service's signatures; needs no secret."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.id: str = hashlib.sha256(raw).hexdigest()[:16]
        self._key = Ed25519PublicKey.from_public_bytes(raw)

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Parse the text form (base64url of the 32 bytes). Raises ConfigError."""
        try:
            return cls(unbase64(text.strip()))
        except ValueError as error:
            raise ConfigError(f"not an ed25519 public key: {text.strip()[:60]!r}") from error

    @property
    def text(self) -> str:
        """The text form: base64url without padding."""
        return base64url(self.raw)

    def is_valid_signature(self, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` over `message` was made with this key."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey(PublicKey):
    """Signs and verifies; `public` is the public half."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        super().__init__(self._private.public_key().public_bytes_raw())
        self.public: PublicKey = PublicKey(self.raw)
        self._secret = hashlib.blake2b(key=seed, digest_size=32, person=_CODES).digest()

    @classmethod
    def generate(cls) -> SigningKey:
        """Generate a new random key."""
        return cls(os.urandom(32))

    def write(self, path: Path) -> None:
        """Write the key to its file (0600), replacing any earlier one."""
        replace_file(path, f"{_PREFIX}{base64url(self._seed)}\n", mode=0o600)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature."""
        return self._private.sign(message)

    def make_code(self, message: bytes) -> bytes:
        """Return a 32-byte code that only the holder of this key can make or check.

        It costs a fiftieth of a signature.
        """
        return hashlib.blake2b(message, key=self._secret, digest_size=32).digest()

    def is_valid_code(self, message: bytes, code: bytes) -> bool:
        """Return whether `code` over `message` was made with this key."""
        return hmac.compare_digest(self.make_code(message), code)


def load_key(path: Path, *, may_make: bool) -> SigningKey:
    """Read the key file, or create it (0600) if it does not exist and `may_make`.

    Raises ConfigError with a hint if the key is missing, readable by others, or invalid.
    """
    text = read_small(path)
    if text is None:
        if not may_make:
            raise ConfigError(
                f"the signing key {path} is missing, and the audit log was signed with it",
                hint="restore it from your backup, or start with --new-key to sign with a new one",
            )
        key = SigningKey.generate()
        key.write(path)
        return key
    mode = read_mode(path) or 0
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
    """Decode base64url without padding, exactly as `base64url` writes it. Raises ValueError."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if base64url(raw) != text:
        raise ValueError("not base64url as it is written")
    return raw
