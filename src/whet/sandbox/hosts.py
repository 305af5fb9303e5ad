"""Named lists of hosts for the settings. None of them is allowed until a person names it.

The code hosts are a fixed list. The package indexes are read from the user's pip and npm settings, in the
environment and the usual files; if these name none, pip and npm themselves say which they use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from whet.late import late_pattern
from whet.searchpath import find_trusted_program, trusted_path

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
_PIP_DEFAULT = (  # an environment without pip has the one that new environments get
    "import ensurepip, glob, os, sys\n"
    "bundle = os.path.join(os.path.dirname(ensurepip.__file__), '_bundled')\n"
    "for folder in (getattr(ensurepip, '_WHEEL_PKG_DIR', None), bundle):\n"
    "    sys.path += glob.glob(os.path.join(folder or bundle, 'pip-*.whl'))\n"
    "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
)
# The variables that replace a default, and the program and words that print it: the index, then other hosts
# that serve its files.
_DEFAULTS = (
    (("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"), "python3", ("-I", "-c", _PIP_DEFAULT)),
    (("npm_config_registry",), "npm", ("config", "get", "registry")),
)
_ASK_S = 10.0
_HOST_NAME = late_pattern(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_OWN_REGISTRY = late_pattern(r"^registry\s*=\s*(\S+)", re.MULTILINE)
_NPM_REGISTRY = late_pattern(r"^(?:@[^:=]+:)?registry\s*=\s*(\S+)", re.MULTILINE)


def expand_hosts(names: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Expand the presets code-hosts and package-indexes in a list of host names."""
    hosts: list[str] = []
    for name in names:
        if name == "code-hosts":
            hosts += CODE_HOSTS
        elif name == "package-indexes":
            hosts += (*read_package_indexes(environment), *ask_default_indexes(environment))
        else:
            hosts.append(name.lower())
    return tuple(dict.fromkeys(hosts))


def index_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the person's package indexes as pip's, uv's and npm's variables: those that the
    environment has, and npm's from ~/.npmrc and pip's from its files. They may hold a login."""
    settings = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    if match := _OWN_REGISTRY.search(_read_file(os.path.expanduser("~/.npmrc"))):
        settings.setdefault("npm_config_registry", match[1])
    for name in (*_PIP_FILES, environment.get("PIP_CONFIG_FILE", "")):
        if (urls := _read_pip_urls(name, ("index-url",))) and urls[0].startswith("http"):
            settings.setdefault("PIP_INDEX_URL", urls[0])
            settings.setdefault("UV_DEFAULT_INDEX", urls[0])
    return settings


def read_package_indexes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of the user's pip and npm settings, or an empty tuple if there are none."""
    urls = [url for name in _VARIABLES for url in environment.get(name, "").split()]
    for name in (*_PIP_FILES, environment.get("PIP_CONFIG_FILE", "")):
        urls += _read_pip_urls(name)
    text = _read_file(os.path.expanduser("~/.npmrc"))
    urls += _NPM_REGISTRY.findall(text)
    hosts = (urlsplit(url).hostname for url in urls)
    return tuple(dict.fromkeys(host for host in hosts if host))


def ask_default_indexes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that pip and npm use if no setting names an index, as these programs print them. If a
    setting names the default index, return its hosts, too.

    Starts them from the trusted path, outside of the workspace; takes up to two seconds.
    """
    try:
        folder = os.getcwd()
    except OSError:
        return ()  # the folder was deleted
    settings = index_settings(environment)
    hosts: list[str] = []
    for variables, name, words in _DEFAULTS:
        chosen = [urlsplit(settings[key]).hostname for key in variables if key in settings]
        paths = (os.path.join(entry, name) for entry in trusted_path(folder).split(os.pathsep))
        programs = (find_trusted_program(path, folder) for path in paths)
        outputs = (_read_output([program, *words]) for program in programs if program is not None)
        defaults = [urlsplit(word).hostname or word for word in next(filter(None, outputs), "").split()]
        hosts += defaults if not chosen or not {*chosen}.isdisjoint(defaults[:1]) else ()
    return tuple(host for host in dict.fromkeys(hosts) if _HOST_NAME.fullmatch(host))


def _read_output(command: list[str]) -> str:
    """Return what a program prints, or an empty string if it fails."""
    import subprocess  # noqa: PLC0415  only where a preset asks for it

    try:
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


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
