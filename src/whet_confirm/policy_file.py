"""The policy file, TOML or YAML: read, validated, and reloaded when it changes.

If a changed file is invalid, the old policy stays in force and the error is reported; at the start it
stops the service. The version is the first 16 hex digits of the SHA-256 of the file's bytes.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import yaml

from whet.config.paths import read_small
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values
from whet_confirm.names import action_key, fold_spelling
from whet_confirm.policy import (
    CONTRACT_LIMIT_S,
    LONGEST_S,
    Condition,
    ConfirmPolicy,
    ConfirmRule,
    Effect,
    parse_path,
)
from whet_confirm.quorum import groups_in, parse_quorum
from whet_confirm.records import ApprovalPlan
from whet_confirm.rotas import Rota, RotaText, build_rota
from whet_confirm.running_grants import GrantKind
from whet_confirm.whitelist import LONGEST_S as LONGEST_GRANT_S

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_SIGNS = {"gt", "ge", "lt", "le", "not"}
Patterns = str | list[str]


class RuleText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule in the format of the file."""

    effect: Effect
    name: str = ""
    action: Patterns = ()  # type: ignore[assignment]
    principal: Patterns = ()  # type: ignore[assignment]
    requester: Patterns = ()  # type: ignore[assignment]
    session: Patterns = ()  # type: ignore[assignment]
    details: dict[str, Any] = {}
    hours: str = ""
    days: list[str] = []
    timezone: str = ""
    quorum: str | int = 1
    deny_threshold: int = 1
    approvers: list[str] = []
    min_review_s: float = 0.0
    timeout_s: int | None = None
    max_timeout_s: int = CONTRACT_LIMIT_S
    escalate_to: str = ""
    escalate_after: float = 0.5
    web_only: bool = False
    second_factor: bool = False
    require_passkey: bool = False
    grants: list[GrantKind] = []
    grant_max_s: float = 28_800.0
    grant_max_uses: int = 10


class PolicyText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    rules: list[RuleText] = []
    groups: dict[str, list[str]] = {}
    rotas: dict[str, RotaText] = {}
    redact: list[str] = []
    approval_valid_s: float = 86_400.0


def load_policy(path: Path | None) -> ConfirmPolicy:
    """Read the policy. Without a path, return the built-in one, which asks about everything.

    Raises ConfigError.
    """
    if path is None:
        return ConfirmPolicy()
    text = read_small(path)
    if text is None:
        raise ConfigError(
            f"there is no policy file {path}", hint="whet confirm policy --help shows an example"
        )
    return parse_policy(text, path)


def parse_policy(text: str, path: Path) -> ConfirmPolicy:
    """Parse a policy's text as TOML, or as YAML if the file's suffix says so.

    Raises ConfigError, which names the rule or line.
    """
    try:
        raw: object = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else tomllib.loads(text)
        policy_text = from_values(raw or {}, PolicyText)
        groups = {name: tuple(people) for name, people in policy_text.groups.items()}
        rotas = {name: _build_rota(name, rota, groups) for name, rota in policy_text.rotas.items()}
        groups |= {name: rota.people for name, rota in rotas.items()}
        names = tuple(map(_check_redacted_name, policy_text.redact))
        rules = tuple(_build_rule(rule, number, groups) for number, rule in enumerate(policy_text.rules, 1))
    except (tomllib.TOMLDecodeError, yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"{path}: {line}", hint="change that rule in the file") from error
    version = hashlib.sha256(text.encode()).hexdigest()[:16]
    return ConfirmPolicy(version, rules, groups, names, policy_text.approval_valid_s, rotas)


def _build_rota(name: str, text: RotaText, groups: dict[str, tuple[str, ...]]) -> Rota:
    if name in groups:
        raise ValueError(f"{name!r} is a group and a rota: give one of them another name")
    _check_timezone(text.timezone)
    return build_rota(name, text)


def _check_redacted_name(name: str) -> str:
    """Return a name in `redact`. Raises ValueError for a path, which would match no name and hide nothing."""
    if not name.strip() or any(sign in name for sign in "$.[]"):
        raise ValueError(
            f"redact {name!r} is not a field's name: write the name alone, for any depth; no path"
        )
    return name


def _build_rule(text: RuleText, number: int, groups: dict[str, tuple[str, ...]]) -> ConfirmRule:
    name = text.name or f"rule {number}"
    try:
        _check_bounds(text)
        quorum = parse_quorum(text.quorum)
        group_names = groups_in(quorum) | {
            entry.removeprefix("group:") for entry in text.approvers if entry.startswith("group:")
        }
        group_names |= {text.escalate_to} - {""}
        if unknown := sorted(group_names - set(groups)):
            raise ValueError(f"there is no group {unknown[0]!r} under [groups] or [rotas]")
        plan = ApprovalPlan(
            rule=name,
            quorum=quorum,
            deny_threshold=text.deny_threshold,
            approvers=tuple(text.approvers),
            min_review_s=text.min_review_s,
            escalate_to=text.escalate_to,
            escalate_after=text.escalate_after,
            needs_web=text.web_only,
            needs_factor=text.second_factor,
            needs_passkey=text.require_passkey,
            grants=tuple(text.grants),
            grant_max_s=text.grant_max_s,
            grant_max_uses=text.grant_max_uses,
        )
        return ConfirmRule(
            name=name,
            effect=text.effect,
            actions=tuple(map(action_key, _as_tuple(text.action))),  # `Deploy_*` matches `deploy_x`
            principals=_as_tuple(text.principal),
            requesters=_as_tuple(text.requester),
            sessions=_as_tuple(text.session),
            conditions=tuple(_build_condition(path, expected) for path, expected in text.details.items()),
            minutes=_parse_hours(text.hours),
            days=frozenset(_DAYS.index(day.lower()[:3]) for day in text.days),
            timezone=_check_timezone(text.timezone),
            plan=plan,
            timeout_s=text.timeout_s,
            max_timeout_s=text.max_timeout_s,
            spellings=tuple(map(fold_spelling, _as_tuple(text.action))),
        )
    except ValueError as error:
        raise ValueError(f"rule {number} ({name}): {error}") from error


def _check_bounds(text: RuleText) -> None:
    if not 30 <= text.max_timeout_s <= LONGEST_S:
        raise ValueError(f"max_timeout_s must be from 30 to {LONGEST_S} (7 days)")
    if text.timeout_s is not None and not 30 <= text.timeout_s <= text.max_timeout_s:
        raise ValueError("timeout_s must be from 30 to max_timeout_s (3600 where that is not set)")
    if not 1 <= text.deny_threshold <= 100:
        raise ValueError("deny_threshold must be from 1 to 100")
    if not 0 < text.escalate_after < 1:
        raise ValueError("escalate_after is a part of the timeout, between 0 and 1")
    if not 60 <= text.grant_max_s <= LONGEST_GRANT_S or not 1 <= text.grant_max_uses <= 1000:
        raise ValueError(f"grant_max_s must be from 60 to {LONGEST_GRANT_S}, grant_max_uses from 1 to 1000")
    if not 0 <= text.min_review_s <= 3600:
        raise ValueError("min_review_s must be from 0 to 3600")
    if wrong := [day for day in text.days if day.lower()[:3] not in _DAYS]:
        raise ValueError(f"{wrong[0]!r} is not a day: mon, tue, wed, thu, fri, sat, sun")


def _as_tuple(patterns: Patterns) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _build_condition(path: str, expected: Any) -> Condition:
    if isinstance(expected, dict) and "exists" in expected:
        test = cast("dict[str, Any]", expected)
        if len(test) > 1 or not isinstance(test["exists"], bool):
            raise ValueError(f"{path} exists takes true or false, and no other test beside it")
    else:
        _check_test(path, expected)
    return Condition(parse_path(path), expected)


def _check_test(path: str, expected: Any) -> None:
    """Raise ValueError for a test that no value can be compared with, also inside a list or under `not`."""
    if isinstance(expected, list):
        for option in cast("list[Any]", expected):
            _check_test(path, option)
    if not isinstance(expected, dict):
        return
    tests = cast("dict[str, Any]", expected)
    if not tests or not tests.keys() <= _SIGNS:
        raise ValueError(f"a test of {path} takes {', '.join(sorted(_SIGNS))}, or exists by itself")
    for sign, bound in tests.items():
        if sign == "not":
            _check_test(path, bound)
        elif isinstance(bound, bool) or not isinstance(bound, int | float):
            raise ValueError(f"{path} {sign} takes a number")


def _parse_hours(hours: str) -> tuple[int, int] | None:
    if not hours:
        return None
    match = _HOURS.fullmatch(hours)
    if match is None:
        raise ValueError(f"hours {hours!r} is not like 09:00-18:00")
    return int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])


def _check_timezone(name: str) -> str:
    if name:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{name!r} is not a time zone like Europe/Berlin") from error
    return name


class PolicyFile:
    """The policy in force and its file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.policy = load_policy(path)
        self.error = ""
        self._stamp = self._read_stamp()

    def reload(self) -> bool:
        """Reload the file if it has changed. Returns True if a new policy is in force.

        If the file is invalid or missing, only `error` changes.
        """
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            policy = load_policy(self.path)
        except ConfigError as error:
            self.error = error.message
            return False
        self.error: str = ""
        is_changed = policy.version != self.policy.version
        self.policy: ConfirmPolicy = policy
        return is_changed

    def _read_stamp(self) -> tuple[int, int, int] | None:
        if self.path is None:
            return None
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)
