"""Convert Hermes Agent's chat platforms to a `gateway.toml`: channels and the people who may use them.

An existing file is never changed. No person gets more access than before: the memory that all admitted people
share in Hermes is the owner's here, and others get one of their own. A setting that admits everyone is not
imported. Source: gateway/config.py, authz_mixin.py and pairing.py of hermes-agent 0.19.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

from whet.clock import iso
from whet.config import paths, secrets
from whet.config.paths import Home
from whet.moving.importing import ImportOutcome
from whet.store.paired import PairedPerson

PART = "chats"
Kind = Literal["telegram", "discord", "slack"]
KINDS: tuple[Kind, ...] = ("telegram", "discord", "slack")
# fmt: off
_OTHERS = (
    "whatsapp", "whatsapp_cloud", "signal", "matrix", "mattermost", "email", "sms", "dingtalk", "feishu",
    "wecom", "weixin", "bluebubbles", "qqbot", "line", "teams", "irc", "google_chat", "ntfy", "simplex",
)
# fmt: on
_VARIABLE_ENDINGS = ("ALLOWED_USERS", "HOME_CHANNEL", "ENABLED", "ACCESS_TOKEN", "BOT_TOKEN", "ACCOUNT")
_TOKENS: dict[Kind, tuple[str, ...]] = {
    "telegram": ("TELEGRAM_BOT_TOKEN",),
    "discord": ("DISCORD_BOT_TOKEN",),
    "slack": ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"),
}
_IDS: dict[Kind, re.Pattern[str]] = {
    "telegram": re.compile(r"\d{1,20}"),
    "discord": re.compile(r"\d{5,25}"),
    "slack": re.compile(r"[UW][A-Z0-9]{2,20}"),
}
_YES = ("true", "1", "yes", "on", "*")
_NO = ("false", "0", "no", "off")
_OWNER = "owner"


class HermesChannel(msgspec.Struct, frozen=True):
    """A platform with its tokens, admitted people and home chat.

    Strangers get a code if `pairing`. The bot answers in groups if `groups`.
    """

    kind: Kind
    tokens: dict[str, str]
    people: tuple[str, ...] = ()
    home_chat: str = ""
    pairing: bool = True
    groups: bool = True


def read(
    settings: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[list[HermesChannel], list[ImportOutcome]]:
    """Return the channels in config.yaml and .env, and an outcome for each setting that can't be imported."""
    channels: list[HermesChannel] = []
    left_out: list[ImportOutcome] = []
    for kind in KINDS:
        block = _merge_settings(settings, kind)
        tokens = {
            name: value for name in _TOKENS[kind] if (value := env.get(name) or _read_token(block, name))
        }
        if not tokens:
            continue
        if str(block.get("enabled", "")).lower() in _NO:
            left_out.append(ImportOutcome(kind, "left", "it is switched off there"))
        elif missing := [name for name in _TOKENS[kind] if name not in tokens]:
            left_out.append(ImportOutcome(kind, "left", f"it has no {missing[0]}"))
        else:
            people, bad_entries = _read_people(kind, block, env)
            left_out += bad_entries
            mention = env.get(f"{kind.upper()}_REQUIRE_MENTION") or block.get("require_mention", True)
            if str(mention).lower() in _NO:
                left_out.append(
                    ImportOutcome(f"{kind}: answering unasked", "left", "in groups it answers who names it")
                )
            channels.append(_read_channel(kind, block, settings, tokens, people, env))
    for name in _OTHERS:
        block = _merge_settings(settings, name)
        is_on = str(block.get("enabled", "")).lower() in _YES
        if is_on or any(env.get(f"{name.upper()}_{ending}") for ending in _VARIABLE_ENDINGS):
            left_out.append(
                ImportOutcome(name, "left", "there is no channel of this kind; the webhook can serve it")
            )
    return channels, left_out


def home_chat(settings: Mapping[str, Any], env: Mapping[str, str], kind: str) -> str:
    """Return the platform's chat for messages without an address, or "" if not set."""
    setting = _merge_settings(settings, kind).get("home_channel")
    chat = cast(dict[str, Any], setting).get("chat_id") if isinstance(setting, dict) else setting
    return str(env.get(f"{kind.upper()}_HOME_CHANNEL") or chat or "").strip()


def _read_channel(
    kind: Kind,
    block: Mapping[str, Any],
    settings: Mapping[str, Any],
    tokens: dict[str, str],
    people: tuple[str, ...],
    env: Mapping[str, str],
) -> HermesChannel:
    strangers = block.get("unauthorized_dm_behavior", settings.get("unauthorized_dm_behavior", "pair"))
    return HermesChannel(
        kind,
        tokens,
        people,
        home_chat(settings, env, kind),
        pairing=str(strangers).lower() != "ignore",
        groups=str(block.get("group_policy", "")).lower() not in ("disabled", "off", "none"),
    )


def _merge_settings(settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a platform's settings from the three places in which Hermes reads them; later ones override."""
    merged: dict[str, Any] = {}
    gateway = settings.get("gateway")
    nested = cast(dict[str, Any], gateway).get("platforms") if isinstance(gateway, dict) else None
    for table in (nested, settings.get("platforms"), settings):
        block = cast(dict[str, Any], table).get(kind) if isinstance(table, Mapping) else None
        if isinstance(block, dict):
            extra = cast(dict[str, Any], block).get("extra")
            merged |= cast(dict[str, Any], extra) if isinstance(extra, dict) else {}
            merged |= {str(key): value for key, value in cast(dict[Any, Any], block).items()}
    return merged


def _read_token(block: Mapping[str, Any], name: str) -> str:
    key = "app_token" if name.endswith("APP_TOKEN") else "token"
    value = block.get(key)
    return value if isinstance(value, str) and not value.startswith("$") else ""


def _read_people(
    kind: Kind, block: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[tuple[str, ...], list[ImportOutcome]]:
    """Return the ids admitted on a platform, and an outcome for each entry that is not an id."""
    entries = [
        *_split_list(env.get(f"{kind.upper()}_ALLOWED_USERS") or block.get("allow_from")),
        *_split_list(env.get("GATEWAY_ALLOWED_USERS")),
    ]
    allow_all = (env.get(f"{kind.upper()}_ALLOW_ALL_USERS"), env.get("GATEWAY_ALLOW_ALL_USERS"))
    left_out: list[ImportOutcome] = []
    if "*" in entries or any((value or "").lower() in _YES for value in allow_all):
        why = "strangers get a pairing code here: whet gateway pair accept CODE"
        left_out.append(ImportOutcome(f"{kind}: everybody let in", "left", why))
    ids: dict[str, None] = {}
    for entry in entries:
        if _IDS[kind].fullmatch(entry):
            ids[entry] = None
        elif entry != "*":
            left_out.append(
                ImportOutcome(f"{kind}: {entry}", "left", "people are known by their ids here, not by names")
            )
    return tuple(ids), left_out


def _split_list(value: Any) -> list[str]:
    items = cast(list[Any], value) if isinstance(value, list) else str(value or "").split(",")
    return [text for item in items if (text := str(item).strip())]


def format_gateway(channels: Sequence[HermesChannel]) -> str:
    """Return the text of a gateway.toml with the channels and people."""
    lines = ["# Taken over from Hermes Agent. `whet gateway` reads it.", ""]
    for channel in channels:
        lines += ["[[channel]]", f"kind = {json.dumps(channel.kind)}"]
        lines += [] if channel.pairing else ["pairing = false"]
        lines += [] if channel.groups else ['groups = "off"']
        lines.append("")
    for name, ids in name_people(channels).items():
        lines.append(f"[people.{name}]")
        lines += ["owner = true"] if name == _OWNER else []
        lines += [f"{kind} = {json.dumps(user)}" for kind, user in ids.items()]
        lines.append("")
    return "\n".join(lines)


def name_people(channels: Sequence[HermesChannel]) -> dict[str, dict[Kind, str]]:
    """Return the ids of the admitted people by name, the owner first.

    The owner on a platform is the person with the home chat, or else the only person.
    """
    ids_by_name: dict[str, dict[Kind, str]] = {}
    for channel in channels:
        only_person = channel.people[0] if len(channel.people) == 1 else ""
        owner = channel.home_chat if channel.home_chat in channel.people else only_person
        for user in channel.people:
            name = _OWNER if user == owner else f"{channel.kind}-{user.lower()}"[:32]
            ids_by_name.setdefault(name, {})[channel.kind] = user
    return {name: ids_by_name[name] for name in sorted(ids_by_name, key=lambda name: (name != _OWNER, name))}


def import_channels(
    home: Home,
    channels: Sequence[HermesChannel],
    imported: Collection[str],
    *,
    dry: bool,
    check: Callable[[str], object],
) -> list[ImportOutcome]:
    """Store the channels' tokens in .env and write gateway.toml, if that does not exist.

    `check` is the gateway's own parser, whose ConfigError stops the import. `imported` are the parts that an
    earlier import has stored.
    """
    if not channels:
        return []
    names = ", ".join(channel.kind for channel in channels)
    if home.gateway.exists():
        return [
            ImportOutcome("gateway.toml", "kept", f"it is here already; there were {names} in Hermes Agent")
        ]
    if PART in imported:
        return [ImportOutcome("gateway.toml", "kept", "it came before and was taken away here")]
    text = format_gateway(channels)
    check(text)
    stored = secrets.read_env(home).values
    if not dry:
        for channel in channels:
            for name, value in channel.tokens.items():
                if name not in stored:
                    secrets.set_secret(home, name, value)
        home.ensure()
        paths.replace_file(home.gateway, text, mode=0o600)
    outcomes = [ImportOutcome(channel.kind, "set", _describe_channel(channel)) for channel in channels]
    for name, ids in name_people(channels).items():
        identities = ", ".join(f"{kind} {user}" for kind, user in ids.items())
        why = "has this home's memory and may approve" if name == _OWNER else "has a memory of their own"
        outcomes.append(ImportOutcome(identities, "let in", f"{name} {why}"))
    return outcomes


def _describe_channel(channel: HermesChannel) -> str:
    notes = ["its tokens are in .env", "whet gateway run serves it once Hermes Agent's gateway is stopped"]
    return "; ".join([*notes, *([] if channel.pairing else ["strangers get no code"])])


def parse_paired_people(kind: Kind, content: Any) -> list[PairedPerson]:
    """Read the people paired by a code on a platform, from its `KIND-approved.json`."""
    paired: list[PairedPerson] = []
    for user, details in cast(dict[Any, Any], content).items() if isinstance(content, dict) else ():
        facts = cast(dict[str, Any], details) if isinstance(details, dict) else {}
        at_s = facts.get("approved_at")
        is_time = isinstance(at_s, int | float) and 0 < at_s < 1e11
        since = iso(datetime.fromtimestamp(cast(float, at_s), UTC)) if is_time else ""
        if _IDS[kind].fullmatch(str(user)):
            name = str(facts.get("user_name") or "")[:100]
            paired.append(PairedPerson(kind, str(user), name, since))
    return paired
