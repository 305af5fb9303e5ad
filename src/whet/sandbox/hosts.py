"""Named lists of hosts for the settings. None of them is allowed until a person names it.

The code hosts are a fixed list. The package indexes are read from the user's pip and npm settings, in the
environment and the usual files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from whet.late import late_pattern

CODE_HOSTS = (
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    "git.sr.ht",
)
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_PIP_KEYS = ("index-url", "extra-index-url", "find-links")
_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "npm_config_registry",
)
_OWN_REGISTRY = late_pattern(r"^registry\s*=\s*(\S+)", re.MULTILINE)
_NPM_REGISTRY = late_pattern(r"^(?:@[^:=]+:)?registry\s*=\s*(\S+)", re.MULTILINE)


def expand_hosts(names: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Expand the presets code-hosts and package-indexes in a list of host names."""
    hosts: list[str] = []
    for name in names:
        if name == "code-hosts":
            hosts += CODE_HOSTS
        elif name == "package-indexes":
            hosts += read_package_indexes(environment)
        else:
            hosts.append(name.lower())
    return tuple(dict.fromkeys(hosts))


def index_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the person's package indexes as pip's, uv's and npm's variables: those that the
    environment has, and npm's from ~/.npmrc and pip's from its files. They may hold a login."""
    found = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    if match := _OWN_REGISTRY.search(_read_file(os.path.expanduser("~/.npmrc"))):
        found.setdefault("npm_config_registry", match[1])
    for name in (*_PIP_FILES, environment.get("PIP_CONFIG_FILE", "")):
        if (urls := _read_pip_urls(name, ("index-url",))) and urls[0].startswith("http"):
            found.setdefault("PIP_INDEX_URL", urls[0])
            found.setdefault("UV_DEFAULT_INDEX", urls[0])
    return found


def read_package_indexes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of the user's pip and npm settings, or an empty tuple if there are none."""
    urls = [url for name in _VARIABLES for url in environment.get(name, "").split()]
    for name in (*_PIP_FILES, environment.get("PIP_CONFIG_FILE", "")):
        urls += _read_pip_urls(name)
    text = _read_file(os.path.expanduser("~/.npmrc"))
    urls += _NPM_REGISTRY.findall(text)
    hosts = (urlsplit(url).hostname for url in urls)
    return tuple(dict.fromkeys(host for host in hosts if host))


def _read_pip_urls(name: str, keys: Iterable[str] = _PIP_KEYS) -> list[str]:
    import configparser  # noqa: PLC0415  2 ms, and only where a command reaches for packages

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_read_file(os.path.expanduser(name)))
    except configparser.Error:
        return []
    return [
        url
        for part in parser.sections()
        for key in keys
        for url in parser.get(part, key, fallback="").split()
    ]


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace") if name else ""
    except OSError:
        return ""
