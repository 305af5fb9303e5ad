"""Recognise the environment variables that hold secrets, by name and by value.

A name counts if it looks like the usual names of secrets. A value counts whatever its name, if it contains a
URL with a password, a vendor's key, a private key or a long random word, or a URL that opens what it leads
to (a webhook). Patterns are compiled only for values that may match, so an ordinary environment takes less
than a millisecond.
"""

from __future__ import annotations

from itertools import pairwise
from string import hexdigits

from whet.log import mask

_KEYS = (
    "KEY",
    "KEYS",
    "APIKEY",
    "APIKEYS",
    "PRIVKEY",
    "SECRET",
    "SECRETS",
    "SALT",
    "JWT",
    "PAT",
    "TOK",
    "SIG",
)
_PASSWORDS = ("PW", "PWD", "PASS", "PIN", "PGPASS", "SSHPASS")
_LOGINS = ("CREDENTIAL", "CREDENTIALS", "CREDS", "AUTH", "AUTH_CONFIG", "COOKIE", "DSN", "BEARER")
_ENDS = (
    *(f"_{word}" for word in (*_KEYS, *_PASSWORDS, *_LOGINS)),
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "KEYPASS", "STOREPASS"),
)
# They end like names of secrets but hold paths. Other names in _PWD, such as MYSQL_PWD, hold passwords.
_NOT_SECRET = frozenset({"PWD", "OLDPWD", "GOOGLE_APPLICATION_CREDENTIALS"})
_SPLIT = str.maketrans(dict.fromkeys("\n\t;,&?'\"<>()|{}[]", " "))
_MIN_RANDOM_CHARS, _MIN_HEX_CHARS, _COMMIT_CHARS = 15, 32, 40
_DIGEST_NAMES = ("SHA", "HASH", "DIGEST", "CHECKSUM", "COMMIT", "REV", "_ID")
_UUID_CHARS, _MIN_HOOK_CHARS = 36, 6
_MAX_CHARS = 20_000


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable's name or value looks like that of a secret."""
    if name.startswith("GIT_CONFIG_KEY_") or name in _NOT_SECRET or not value:
        return False
    return has_secret_name(_snake_case(name)) or _has_secret_value(name, value[:_MAX_CHARS])


def has_secret_name(name: str) -> bool:
    """Return whether a variable's name ends like the names of secrets, or contains the word SECRET.

    Digits at the end are ignored.
    """
    words = f"_{name.upper()}".replace("-", "_")
    # no regular expression: compiling one takes longer than most commands take to run
    stem = words.rstrip("0123456789")
    if stem != words:
        stem = stem.removesuffix("_")
    return name not in _NOT_SECRET and ("_SECRET_" in words or stem.endswith(_ENDS))


def _has_secret_value(name: str, value: str) -> bool:
    if "PRIVATE KEY-----" in value or _has_login(value):
        return True
    may_be_hex_key = not any(word in name.upper() for word in _DIGEST_NAMES)
    words = value.translate(_SPLIT).split()
    if any(_introduces_secret(*pair) for pair in pairwise(words)):
        return True
    for word in words:
        key, _, text = word.partition("=") if "://" not in word else (word, "", "")
        if text.strip("=") and text[0] not in "$/" and has_secret_name(_snake_case(key)):
            return True
        if "://" in word and _opens_its_target(word):
            return True
        if any(_is_random(part, may_be_hex_key) for part in _candidates(text if text.strip("=") else word)):
            return True
    return False


def _introduces_secret(word: str, following: str) -> bool:
    """Return whether the second of two words is a secret: an HTTP credential after its scheme, a login after
    curl's -u, or a password after its keyword as in netrc."""
    if word in ("-u", "--user"):
        return ":" in following
    return word.lower() in ("bearer", "basic", "password", "passwd", "authorization:") and len(following) > 3


def _has_login(value: str) -> bool:
    """Return whether a URL in the value contains a password, or a random user name."""
    for address in value.split("://")[1:]:
        login, mark, _ = address.partition("/")[0].rpartition("@")
        user, _, password = login.partition(":")
        if mark and (password or _is_random(user, True)):
            return True
    return False


def _opens_its_target(address: str) -> bool:
    """Return whether a URL is enough to use what it leads to: a UUID is in its path, the part before one is
    called a key or the like, or its host or an earlier part is called a hook."""
    host, *parts = address.partition("://")[2].split("/")
    is_hook = "hook" in host.lower()
    for before, part in pairwise(("", *parts)):
        is_hook = is_hook or "hook" in before.lower()
        names_key = before.isalpha() and has_secret_name(before)
        if _is_uuid(part) or (part and names_key) or (is_hook and len(part) >= _MIN_HOOK_CHARS):
            return True
    return False


def _is_uuid(text: str) -> bool:
    return (
        len(text) == _UUID_CHARS and text[8:24:5] == "----" and all(char in f"{hexdigits}-" for char in text)
    )


def _candidates(word: str) -> list[str]:
    """Return the parts of a word to test for randomness. Empty for a path or an option."""
    _, mark, address = word.partition("://")
    if mark:
        return [part for segment in address.split("/") for part in (segment, *segment.split("="))]
    return [] if word.startswith(("/", "~", ".", "-")) else [word, *word.split(":")]


def _is_random(text: str, may_be_hex_key: bool) -> bool:
    if len(text) < _MIN_RANDOM_CHARS or text.isalpha() or not any(map(str.isdigit, text)):
        return False
    if all(char in hexdigits for char in text):
        return may_be_hex_key and len(text) >= _MIN_HEX_CHARS and len(text) != _COMMIT_CHARS
    from whet.config.redact import looks_random  # noqa: PLC0415 - its patterns take 50 ms to compile

    return (":" not in text and looks_random(text)) or mask(text) != text


def _snake_case(name: str) -> str:
    """Return a camelCase name with an underscore before each capital. Names in capitals are unchanged."""
    words = "".join(f"_{char}" if char.isupper() else char for char in name)
    return name if name.isupper() else words
