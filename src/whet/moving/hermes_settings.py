"""Convert the config.yaml and the keys of a Hermes Agent home to our settings.

Settings without a counterpart are listed by name. Values of secrets are never shown. Source: the config.yaml
of hermes-agent 0.19.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from whet.config import edit, load, secrets
from whet.config.paths import Home
from whet.config.redact import mask_secrets
from whet.contract.errors import WhetError
from whet.moving.importing import ImportOutcome
from whet.providers.catalog import SERVERS

_PROVIDERS = {"google": "gemini", "x-ai": "xai", "together-ai": "together", "lm-studio": "lmstudio"}
OWN_KEY = "CUSTOM_API_KEY"
"""The variable for the key of a server that has no key name of its own."""
_CHAINS = ("fallback_providers", "fallback_model")
_MODES = {"manual": "ask", "smart": "ask", "ask": "ask"}
# Settings that other parts of the import handle: servers, memory, chats, the persona, the time zone.
_ELSEWHERE = re.compile(
    r"mcp_servers\..*|memory\.provider|agent\.system_prompt|timezone|((gateway\.)?platforms\.)?(telegram|discord|slack)\.(extra\.)?"
    r"(enabled|token|app_token|allow_from|home_channel(\..*)?|unauthorized_dm_behavior|group_policy|require_mention)"
    r"|(TELEGRAM|DISCORD|SLACK|GATEWAY)_(ALLOWED_USERS|ALLOW_ALL_USERS|HOME_CHANNEL|REQUIRE_MENTION)"
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")


def find_own_key(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return our variable for the API key that is written in config.yaml, and the key, or None."""
    theirs = flatten(merge_named_server(settings))
    key = theirs.get("model.api_key")
    if not isinstance(key, str) or not key or key.startswith("$"):
        return None
    provider = _PROVIDERS.get(str(theirs.get("model.provider")), str(theirs.get("model.provider")))
    server = SERVERS.get(provider)
    return (server.keys[0] if server and server.keys else OWN_KEY), key


def merge_named_server(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the entry of `custom_providers` for the model's server merged into `model`."""
    model: Any = settings.get("model")
    block = dict(cast(dict[str, Any], model)) if isinstance(model, dict) else {"default": model}
    server_name = str(block.get("provider") or "").lower().removeprefix("custom:")
    for name, entry in _named_servers(settings):
        if server_name and name.lower() == server_name and entry.get("base_url"):
            overrides = {"provider": "custom", "base_url": entry["base_url"]}
            key = entry.get("api_key") or block.get("api_key")
            block |= overrides | ({"api_key": key} if key else {})
            block |= {"api_key_env": entry["key_env"]} if entry.get("key_env") else {}
    return {**settings, "model": block}


def _named_servers(settings: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the servers that the person has named, from the list `custom_providers` and table
    `providers`."""
    listed, table = settings.get("custom_providers"), settings.get("providers")
    servers: list[tuple[str, dict[str, Any]]] = []
    for entry in cast(list[Any], listed) if isinstance(listed, list) else ():
        if isinstance(entry, dict):
            fields = cast(dict[str, Any], entry)
            servers.append((str(fields.get("name") or ""), fields))
    for name, entry in cast(dict[Any, Any], table).items() if isinstance(table, dict) else ():
        if isinstance(entry, dict):
            servers.append((str(name), cast(dict[str, Any], entry)))
    return servers


def _convert_fallback(settings: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return our fallback settings, and the reasons why others are left out. Whet has one fallback."""
    entries: list[Any] = []
    for key in _CHAINS:
        setting: Any = settings.get(key)
        entries += cast(list[Any], setting) if isinstance(setting, list) else [setting]
    chain = [cast(dict[str, Any], entry) for entry in entries if isinstance(entry, dict) and entry]
    ours: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for entry in chain[:1]:
        provider = _PROVIDERS.get(str(entry.get("provider")), str(entry.get("provider")))
        if not entry.get("model") or not (provider in SERVERS or entry.get("base_url")):
            left_out["fallback_providers"] = (
                f"the provider {provider} is not known here; set fallback.base_url"
            )
            continue
        ours["fallback.provider"] = provider if provider in SERVERS else "custom"
        ours["fallback.model"] = str(entry["model"])
        for theirs, key in (("base_url", "fallback.base_url"), ("key_env", "fallback.api_key_env")):
            if entry.get(theirs):
                ours[key] = str(entry[theirs])
    if chain[1:]:
        names = ", ".join(str(entry.get("model")) for entry in chain[1:])
        left_out["fallback_providers"] = f"one fallback is what there is here; not taken: {names[:120]}"
    return ours, left_out


def is_variable(key: str, value: Any) -> bool:
    """Return whether Hermes exports a setting to the environment."""
    return bool(_VARIABLE.fullmatch(str(key))) and isinstance(value, str | int | float)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted keys."""
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            flattened.update(flatten(cast(dict[str, Any], value), f"{key}."))
        else:
            flattened[key] = value
    return flattened


def map_settings(settings: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return our settings by key, and the reason for each of theirs that is left out, by its key."""
    ours, left_out = _convert_fallback(settings)
    other_settings = {key: value for key, value in settings.items() if key not in _CHAINS}
    for key, value in flatten(merge_named_server(other_settings)).items():
        convert = _CONVERTERS.get(key)
        if value in (None, "", [], {}) or (key.startswith("_") and convert is None):
            continue
        if key == "model.api_key" or _ELSEWHERE.fullmatch(key) or secrets.is_secret_name(key):
            continue  # another part of the import handles it
        converted = convert(value) if convert is not None else "has no counterpart"
        if isinstance(converted, str):
            left_out[key] = converted
        else:
            ours.update(converted)
    key_pair = find_own_key(settings)
    if key_pair is not None and key_pair[0] == OWN_KEY:
        ours["model.api_key_env"] = OWN_KEY
    if ours.get("model.provider") == "custom" and "model.base_url" not in ours:
        left_out["model.provider"] = "custom without a base_url"
        del ours["model.provider"]
    return ours, left_out


_Converter: TypeAlias = Callable[[Any], "dict[str, str] | str"]
"""Converts a value of Hermes to our settings by key, or returns the reason why it is left out."""


def _copy_to(key: str) -> _Converter:
    return lambda value: {key: str(value)}


def _convert_provider(value: Any) -> dict[str, str] | str:
    name = _PROVIDERS.get(str(value), str(value))
    if name in SERVERS or name == "custom":
        return {"model.provider": name}
    return f"the provider {name} is not known here; set model.base_url"


def _convert_mode(value: Any) -> dict[str, str] | str:
    mode = _MODES.get(str(value))
    return {"approval.mode": mode} if mode else "turning approvals off is yours to decide: approval.mode"


def _convert_deny_patterns(value: Any) -> dict[str, str] | str:
    """Convert their command patterns to our deny rules."""
    entries = cast("list[Any]", value) if isinstance(value, list) else [value]
    patterns = [pattern for pattern in entries if isinstance(pattern, str) and pattern.strip()]
    if len(patterns) != len(entries):
        return "not all of it is patterns of commands; see approval.deny"
    rules = [f"terminal({pattern.strip()})" for pattern in patterns]
    return {"approval.deny": json.dumps(rules, ensure_ascii=False)}


_CONVERTERS: dict[str, _Converter] = {
    "model.default": _copy_to("model.model"),
    "model.model": _copy_to("model.model"),
    "model.provider": _convert_provider,
    "model.base_url": _copy_to("model.base_url"),
    "model.api_key_env": _copy_to("model.api_key_env"),
    "memory.memory_char_limit": _copy_to("memory.memory_chars"),
    "memory.user_char_limit": _copy_to("memory.user_chars"),
    "model.context_length": _copy_to("model.window_tokens"),
    "model.max_tokens": _copy_to("model.max_output_tokens"),
    "agent.max_turns": _copy_to("agent.max_steps"),
    "agent.reasoning_effort": _copy_to("model.reasoning_effort"),
    "terminal.timeout": _copy_to("tools.terminal_timeout_s"),
    "approvals.mode": _convert_mode,
    "approvals.deny": _convert_deny_patterns,
    "context.engine": _copy_to("context.engine"),
    "display.show_reasoning": lambda value: {"ui.show_reasoning": "true" if value else "false"},
}


def import_settings(home: Home, theirs: Mapping[str, Any], *, dry: bool) -> list[ImportOutcome]:
    """Write settings with a counterpart to our config.yaml, unless they are set here."""
    ours, left_out = map_settings(theirs)
    loaded = load.load(home, environ={})
    outcomes: list[ImportOutcome] = []
    for key, text in ours.items():
        if loaded.origins[key] != "default":
            outcomes.append(ImportOutcome(key, "kept", "set here already"))
            continue
        try:
            if not dry:
                edit.set_value(home, key, text)
            outcomes.append(ImportOutcome(key, "set", mask_secrets(text)))
        except WhetError as error:
            outcomes.append(ImportOutcome(key, "left", error.message))
    return outcomes + [ImportOutcome(key, "left", why) for key, why in sorted(left_out.items())]


def import_keys(home: Home, keys: Mapping[str, str], *, dry: bool) -> list[ImportOutcome]:
    """Write their secrets to our .env, unless they are set here."""
    stored = secrets.read_env(home).values
    outcomes: list[ImportOutcome] = []
    for name, value in sorted(keys.items()):
        if name in stored:
            outcomes.append(ImportOutcome(name, "kept", "set here already"))
            continue
        if not dry:
            secrets.set_secret(home, name, value)
        outcomes.append(ImportOutcome(name, "set"))
    return outcomes
