"""Load and store secrets in the environment and the home's .env, and find the proxy for a host.

The environment overrides .env. That file has NAME=VALUE lines with optional quotes, `export` and comments;
nothing in it is expanded or run. Once loaded, the values of secrets are masked in every log and error.
Messages name variables and lines, never values.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Mapping

import msgspec

from whet.config import paths
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.late import late_pattern
from whet.log import protect, protect_keys

_LINE = late_pattern(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_SECRET = late_pattern(r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS?)(?:_|\d|$)")
_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")
IN_KEYRING = "keyring:"
"""The marker in .env for a key that is in the system's keyring."""
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class EnvFile(msgspec.Struct, frozen=True):
    """The contents of .env: the values by name, and the numbers of lines that can't be parsed."""

    values: dict[str, str]
    bad_lines: tuple[int, ...] = ()


def parse_env(text: str) -> EnvFile:
    """Parse the text of a .env file. If a name occurs twice, the last value counts."""
    values: dict[str, str] = {}
    bad_lines: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = _parse_value(match[2]) if match else None
        if match is None or value is None or "\0" in value:
            bad_lines.append(number)
        else:
            values[match[1]] = value
    return EnvFile(values, tuple(bad_lines))


def _parse_value(text: str) -> str | None:
    """Return the value without quotes and comment, or None if its quotes don't match."""
    if text[:1] not in ("'", '"'):
        return re.split(r"\s+#", text, maxsplit=1)[0].strip() if not text.startswith("#") else ""
    quote = text[0]
    body = r"((?:[^\"\\]|\\.)*)" if quote == '"' else r"([^']*)"
    match = re.fullmatch(rf"{quote}{body}{quote}\s*(?:#.*)?", text)
    if match is None:
        return None
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[1]) if quote == '"' else match[1]


def read_env(home: Home) -> EnvFile:
    """Read the home's .env. A missing file is empty. Raises ConfigError if it can't be read."""
    return parse_env(paths.read_small(home.env) or "")


def env_warnings(home: Home) -> list[str]:
    """Return the problems of .env: lines that can't be parsed, and a mode that lets others read it."""
    mode = paths.read_mode(home.env)
    if mode is None:
        return []
    warnings = [f"{home.env} line {n} is not NAME=VALUE and is ignored" for n in read_env(home).bad_lines]
    if mode & 0o077:
        warnings.append(f"{home.env} can be read by others (mode {mode:04o}); run: chmod 600 {home.env}")
    return warnings


def load_secrets(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of .env and the environment. A variable overrides .env unless it is empty.

    From now on, `log.mask` replaces every value whose name looks like a secret's, and answers hold none of
    them. Raises ConfigError if .env or a key in the system's keyring can't be read.
    """
    file_values = read_env(home).values
    merged = {**file_values, **{name: value for name, value in environ.items() if value}}
    if IN_KEYRING in merged.values():
        from whet.config.keychain import read_key  # noqa: PLC0415 - few keep keys there

        merged = {
            name: read_key(home, name) if value == IN_KEYRING else value for name, value in merged.items()
        }
    protect_keys([value for name, value in merged.items() if is_secret_name(name)])
    return merged


def list_known_secrets(home: Home, environ: Mapping[str, str]) -> list[str]:
    """Return the secrets of .env, if it can be read, and of the environment, but none of the keyring's."""
    try:
        values = read_env(home).values
    except ConfigError:
        values = {}
    pairs = (*values.items(), *environ.items())
    return [value for name, value in pairs if is_secret_name(name) and value != IN_KEYRING]


def is_secret_name(name: str) -> bool:
    """Return whether a variable's name suggests that its value is secret."""
    return _SECRET.search(name.upper()) is not None


def set_secret(home: Home, name: str, value: str) -> None:
    """Store NAME=VALUE in .env with mode 0600 and keep other lines. On return it is on disk.

    Raises ConfigError.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(f"{name!r} is not a variable's name", hint="letters, digits and _ only")
    if any(char in value for char in "\n\r\0"):
        raise ConfigError(f"the value of {name} has more than one line", hint="paste the key alone")
    protect([value] if value != IN_KEYRING else [])
    home.ensure()
    quoted = re.sub(r'([\\"])', r"\\\1", value)
    line = f"{name}={value}" if re.fullmatch(r"[A-Za-z0-9._:/+=@-]*", value) else f'{name}="{quoted}"'
    with paths.lock_folder(home.root):
        paths.replace_file(home.env, "\n".join([*_other_lines(home, name), line]) + "\n", mode=0o600)


def remove_secret(home: Home, name: str) -> bool:
    """Remove a key from .env and the system's keyring. Returns False if .env does not have it.

    On return the key is off the disk. Raises ConfigError.
    """
    with paths.lock_folder(home.root):
        value = read_env(home).values.get(name)
        if value is None:
            return False
        if value == IN_KEYRING:
            from whet.config.keychain import delete_key  # noqa: PLC0415 - as above

            delete_key(home, name)
        paths.replace_file(home.env, "".join(f"{line}\n" for line in _other_lines(home, name)), mode=0o600)
    return True


def _other_lines(home: Home, name: str) -> list[str]:
    """Return the lines of .env that do not set `name`."""
    lines = (paths.read_small(home.env) or "").splitlines()
    matches = [_LINE.fullmatch(line.strip()) for line in lines]
    return [line for line, match in zip(lines, matches, strict=True) if not match or match[1] != name]


def store_secret(home: Home, name: str, value: str) -> str:
    """Store a key in the system's keyring if there is one, else in .env. Returns the name of that place.

    On return the key is on disk. Raises ConfigError.
    """
    from whet.config.keychain import is_available, store_key  # noqa: PLC0415 - as above

    protect([value])
    if not is_available():
        set_secret(home, name, value)
        return str(home.env)
    store_key(home, name, value)
    set_secret(home, name, IN_KEYRING)
    return "the system's keyring"


def find_proxy(scheme: str, host: str) -> str:
    """Return the URL of the proxy for a request of this scheme to this host, or "" for a direct connection.

    HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY count, or the system's own settings. Servers on this
    machine's loopback never get a proxy, which could not reach them. All HTTP code uses this function.
    """
    names = {name.lower() for name in os.environ}
    if not _HAS_SYSTEM_SETTINGS and not any(name.endswith("_proxy") for name in names - {"no_proxy"}):
        return ""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 15 ms of CPU; most have no proxy

    from whet.config.key_hosts import is_loopback  # noqa: PLC0415 - as above

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all") or ""
    address = f"[{host}]" if ":" in host and host[0] != "[" else host
    if not proxy or is_loopback(f"{scheme}://{address}"):
        return ""
    if proxy_bypass(host) or _is_in_network(host, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_network(host: str, no_proxy: str) -> bool:
    """Return whether NO_PROXY names a network, such as 192.168.0.0/16, that contains the address `host`."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    for name in no_proxy.split(","):
        try:
            if "/" in name and address in ipaddress.ip_network(name.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
