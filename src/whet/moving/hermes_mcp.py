"""Import Hermes Agent's `mcp_servers`: their settings to config.yaml, their keys to .env.

Settings without a counterpart are listed. A server that would not work is not imported. Values of keys are
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
from whet.moving.importing import ImportOutcome

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
    """A server: `entry` goes to config.yaml, `keys` to .env. `notes` list settings that can't be imported."""

    name: str
    entry: dict[str, object]
    keys: dict[str, str]
    notes: tuple[str, ...] = ()


class _NotImported(Exception):
    """Raised with the reason why a server is not imported."""


def read(
    settings: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[list[HermesMcpServer], list[ImportOutcome]]:
    """Return the servers in a config.yaml, and an outcome for each entry that can't be imported.

    `env` are the variables of its .env.
    """
    table = settings.get("mcp_servers")
    servers: list[HermesMcpServer] = []
    left_out: list[ImportOutcome] = []
    for name, entry in cast(dict[Any, Any], table).items() if isinstance(table, dict) else ():
        try:
            if not isinstance(entry, dict):
                raise _NotImported("it is not a table of settings")
            servers.append(_Reader(str(name), cast(dict[str, Any], entry), env).server())
        except _NotImported as why:
            left_out.append(ImportOutcome(str(name), "left", str(why)))
    return servers, left_out


def import_servers(
    home: Home, servers: Sequence[HermesMcpServer], imported: Collection[str], *, dry: bool
) -> list[ImportOutcome]:
    """Write the servers' keys to .env, then the servers to config.yaml.

    Servers that exist here, or that an earlier import has stored (`imported`), are left unchanged.
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
    stored = secrets.read_env(home).values
    try:
        if not dry:
            for name, value in server.keys.items():
                if name not in stored:
                    secrets.set_secret(home, name, value)
            edit.set_table_entry(home, _KEY, server.name, server.entry)
    except WhetError as error:
        return ImportOutcome(server.name, "left", error.message)
    notes = list(server.notes)
    if server.keys:
        notes.insert(0, f"keys in .env: {', '.join(sorted(server.keys))}")
    if server.entry.get("enabled") is False:
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
        """Return the server. Raises _NotImported if it can't be imported."""
        if not SERVER_NAME.fullmatch(self._name):
            raise _NotImported("its name has no letter or digit that a name may have here")
        if str(self._entry.get("transport") or "").lower() == "sse":
            raise _NotImported("it speaks the old SSE transport; streamable HTTP is what is spoken here")
        ours: dict[str, object] = {}
        if command := self._entry.get("command"):
            ours["command"] = self._expand("command", command)
            if args := self._entry.get("args"):
                ours["args"] = [self._expand("args", arg) for arg in cast(list[Any], args)]
        if url := self._entry.get("url"):
            ours["url"] = self._expand("url", url)
        for table in ("env", "headers"):
            if values := self._entry.get(table):
                ours[table] = {
                    str(name): self._move_keys(str(name), str(value))
                    for name, value in cast(dict[str, Any], values).items()
                    if value is not None
                }
        self._convert_limits(ours)
        try:
            check_server(self._name, from_values(ours, McpServerSettings))
        except (msgspec.ValidationError, WhetError) as error:
            raise _NotImported(str(error)) from error
        self._note_unmapped()
        return HermesMcpServer(self._name, ours, self._keys, tuple(self._notes))

    def _convert_limits(self, ours: dict[str, object]) -> None:
        """Add the time limits, the allowed and denied tools, and `enabled` to our settings of the server."""
        for their_key, our_key in (("timeout", "timeout_s"), ("connect_timeout", "start_timeout_s")):
            value = self._entry.get(their_key)
            if isinstance(value, int | float) and value > 0:
                ours[our_key] = value
        tools = self._entry.get("tools")
        for their_key, our_key in (("include", "allow"), ("exclude", "deny")):
            names = cast(dict[str, Any], tools).get(their_key) if isinstance(tools, dict) else None
            if names:
                ours[our_key] = [names] if isinstance(names, str) else [str(name) for name in names]
        if "allow" in ours:
            ours.pop("deny", None)  # in Hermes a list of included tools overrides the excluded ones
        if str(self._entry.get("enabled", True)).lower() in _NO:
            ours["enabled"] = False

    def _note_unmapped(self) -> None:
        if str(self._entry.get("auth") or "").lower() == "oauth":
            self._notes.append(f"it wants a login: whet mcp login {self._name}")
        if unmapped := sorted(str(key) for key, value in self._entry.items() if key not in _MAPPED and value):
            self._notes.append(f"has no counterpart: {', '.join(unmapped)}")

    def _expand(self, where: str, value: Any) -> str:
        """Return a value with its variables replaced, because here only env and headers expand variables.

        Raises _NotImported if it contains a key.
        """
        text = str(value)
        for name in _REFERENCE.findall(text):
            if name not in self._env or secrets.is_secret_name(name):
                raise _NotImported(
                    f"its {where} names ${{{name}}}; variables are filled into env and headers only"
                )
        text = _REFERENCE.sub(lambda match: self._env[match[1]], text)
        if holds_secret(text) or (where == "args" and holds_secret(f"--{self._option} {text}")):
            raise _NotImported(f"a key stands in its {where}; whet mcp add, with the key in env or headers")
        self._option = text.lstrip("-") if text.startswith("-") and "=" not in text else "x"
        return text

    def _move_keys(self, name: str, value: str) -> str:
        """Return a value of env or headers with keys replaced by ${VARIABLE}. Those keys go to .env."""
        if _REFERENCE.search(value):
            for variable in _REFERENCE.findall(value):
                if self._env.get(variable):
                    self._keys[variable] = self._env[variable]
            return _REFERENCE.sub(lambda match: f"${{{match[1]}}}", value)
        is_secret = secrets.is_secret_name(name.replace("-", "_")) or name.lower() == "authorization"
        if not value or not (is_secret or holds_secret(value) or holds_secret(f"{name}={value}")):
            return value
        scheme = _SCHEME.fullmatch(value) if name.lower() == "authorization" else None
        variable = self._variable(name)
        self._keys[variable] = scheme[2] if scheme else value
        return f"{scheme[1]} ${{{variable}}}" if scheme else f"${{{variable}}}"

    def _variable(self, name: str) -> str:
        """Return a variable's name for a key. It looks like a secret's, so that the value is masked."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", f"MCP_{self._name}_{name}").upper().strip("_")
        return plain if secrets.is_secret_name(plain) else f"{plain}_SECRET"
