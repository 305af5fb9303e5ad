"""Imports Hermes Agent's `mcp_servers`: settings to config.yaml, keys to .env.

A server keeps its settings and its enabled state; its permissions are decided by the gate here. Settings
without a counterpart are listed, and a server that would not work is not imported. Values of keys are
never shown. Source: the mcp_servers of hermes-agent 0.19.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.config import edit, secrets
from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.config.redact import holds_secret
from whet.contract.errors import WhetError
from whet.contract.texts import from_values
from whet.mcp.listing import SERVER_NAME
from whet.mcp.remote import check_server
from whet.moving.carry import ImportOutcome

PART = "mcp"
_KEY = "mcp.servers"
_REFERENCE = re.compile(r"\$\{(?:env:)?\s*([^}\s]+)\s*\}")
_SCHEME = re.compile(r"(?i)(bearer|basic|token)\s+(\S.*)")
_MAPPED = {
    "command", "args", "env", "url", "headers", "timeout", "connect_timeout", "tools", "enabled", "transport",
    "auth",
}  # fmt: skip
_NO = ("false", "0", "no", "off")


class HermesMcpServer(msgspec.Struct, frozen=True):
    """A server as written to config.yaml; `keys` go to .env. `notes` list settings that were not imported."""

    name: str
    part: dict[str, object]
    keys: dict[str, str]
    notes: tuple[str, ...] = ()


class _Left(Exception):
    """Raised with the reason why a server is not imported."""


def read(
    settings: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[list[HermesMcpServer], list[ImportOutcome]]:
    """Read the servers in a config.yaml; `env` is the content of its .env. Returns the servers, and one
    outcome per entry that can't be imported."""
    table = settings.get("mcp_servers")
    servers, left_out = list[HermesMcpServer](), list[ImportOutcome]()
    for name, entry in cast(dict[Any, Any], table).items() if isinstance(table, dict) else ():
        try:
            if not isinstance(entry, dict):
                raise _Left("it is not a table of settings")
            servers.append(_Reader(str(name), cast(dict[str, Any], entry), env).server())
        except _Left as why:
            left_out.append(ImportOutcome(str(name), "left", str(why)))
    return servers, left_out


def import_servers(
    home: Home, servers: Sequence[HermesMcpServer], imported: Collection[str], *, dry: bool
) -> list[ImportOutcome]:
    """Write servers to config.yaml, their keys to .env first.

    A server that exists here, or is named in `imported` (by an earlier import), is left unchanged.
    """
    existing = load(home, {}, environ={}).settings.mcp.servers
    outcomes: list[ImportOutcome] = []
    for server in servers:
        if server.name in existing:
            outcomes.append(ImportOutcome(server.name, "kept", "a server of that name is here already"))
        elif server.name in imported:
            outcomes.append(ImportOutcome(server.name, "kept", "it came before and was taken away here"))
        else:
            outcomes.append(_import_server(home, server, dry))
    return outcomes


def _import_server(home: Home, server: HermesMcpServer, dry: bool) -> ImportOutcome:
    have = secrets.read_env(home).values
    try:
        if not dry:
            for name, value in server.keys.items():
                if name not in have:
                    secrets.set_secret(home, name, value)
            edit.set_table_entry(home, _KEY, server.name, server.part)
    except WhetError as error:
        return ImportOutcome(server.name, "left", error.message)
    notes = [*([f"keys in .env: {', '.join(sorted(server.keys))}"] if server.keys else []), *server.notes]
    if server.part.get("enabled") is False:
        notes.insert(0, "switched off, as it was there")
    return ImportOutcome(server.name, "set", "; ".join(notes))


class _Reader:
    """Reads one entry of `mcp_servers`."""

    def __init__(self, name: str, entry: dict[str, Any], env: Mapping[str, str]) -> None:
        self._name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:30].rstrip("-")
        self._entry = entry
        self._env = env
        self._keys: dict[str, str] = {}
        self._notes: list[str] = []
        self._option = "x"  # the previous argument, if it is an option

    def server(self) -> HermesMcpServer:
        """Return the server. Raises _Left if it can't be imported."""
        if not SERVER_NAME.fullmatch(self._name):
            raise _Left("its name has no letter or digit that a name may have here")
        if str(self._entry.get("transport") or "").lower() == "sse":
            raise _Left("it speaks the old SSE transport; streamable HTTP is what is spoken here")
        part: dict[str, object] = {}
        if command := self._entry.get("command"):
            part["command"] = self._expand("command", command)
            if args := self._entry.get("args"):
                part["args"] = [self._expand("args", arg) for arg in cast(list[Any], args)]
        if url := self._entry.get("url"):
            part["url"] = self._expand("url", url)
        for table in ("env", "headers"):
            if values := self._entry.get(table):
                part[table] = {
                    str(name): self._move_keys(str(name), str(value))
                    for name, value in cast(dict[str, Any], values).items()
                    if value is not None
                }
        self._limits(part)
        self._check(part)
        self._note_unmapped()
        return HermesMcpServer(self._name, part, self._keys, tuple(self._notes))

    def _limits(self, part: dict[str, object]) -> None:
        for theirs, ours in (("timeout", "timeout_s"), ("connect_timeout", "start_timeout_s")):
            value = self._entry.get(theirs)
            if isinstance(value, int | float) and value > 0:
                part[ours] = value
        tools = self._entry.get("tools")
        for theirs, ours in (("include", "allow"), ("exclude", "deny")):
            names = cast(dict[str, Any], tools).get(theirs) if isinstance(tools, dict) else None
            if names:
                part[ours] = [names] if isinstance(names, str) else [str(name) for name in names]
        if "allow" in part:
            part.pop("deny", None)  # in Hermes a list of included tools overrides the excluded ones
        if str(self._entry.get("enabled", True)).lower() in _NO:
            part["enabled"] = False

    def _check(self, part: dict[str, object]) -> None:
        try:
            check_server(self._name, from_values(part, McpServerSettings))
        except (msgspec.ValidationError, WhetError) as error:
            raise _Left(str(error)) from error

    def _note_unmapped(self) -> None:
        if str(self._entry.get("auth") or "").lower() == "oauth":
            self._notes.append(f"it wants a login: whet mcp login {self._name}")
        if unmapped := sorted(str(key) for key, value in self._entry.items() if key not in _MAPPED and value):
            self._notes.append(f"has no counterpart: {', '.join(unmapped)}")

    def _expand(self, where: str, value: Any) -> str:
        """Return a value with known variables filled in: here, only env and headers expand variables. Raises
        _Left if it contains a key."""
        text = str(value)
        for name in _REFERENCE.findall(text):
            if name not in self._env or secrets.is_secret_name(name):
                raise _Left(f"its {where} names ${{{name}}}; variables are filled into env and headers only")
        text = _REFERENCE.sub(lambda found: self._env[found[1]], text)
        if holds_secret(text) or (where == "args" and holds_secret(f"--{self._option} {text}")):
            raise _Left(f"a key stands in its {where}; whet mcp add, with the key in env or headers")
        self._option = text.lstrip("-") if text.startswith("-") and "=" not in text else "x"
        return text

    def _move_keys(self, name: str, value: str) -> str:
        """Return a value of env or headers with keys replaced by ${VARIABLE}, and note those keys for
        .env."""
        if _REFERENCE.search(value):
            for variable in _REFERENCE.findall(value):
                if self._env.get(variable):
                    self._keys[variable] = self._env[variable]
            return _REFERENCE.sub(lambda found: f"${{{found[1]}}}", value)
        is_secret = secrets.is_secret_name(name.replace("-", "_")) or name.lower() == "authorization"
        if not value or not (is_secret or holds_secret(value) or holds_secret(f"{name}={value}")):
            return value
        scheme = _SCHEME.fullmatch(value) if name.lower() == "authorization" else None
        variable = self._variable(name)
        self._keys[variable] = scheme[2] if scheme else value
        return f"{scheme[1]} ${{{variable}}}" if scheme else f"${{{variable}}}"

    def _variable(self, name: str) -> str:
        """Return a variable name for a value. The name must look secret, otherwise the value would not be
        masked."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", f"MCP_{self._name}_{name}").upper().strip("_")
        return plain if secrets.is_secret_name(plain) else f"{plain}_SECRET"
