"""Read the tables `[[channel]]` and `[people.NAME]` of the gateway's and the confirmation service's files.

Other fields of a channel belong to its platform. Other fields of a person are ids on platforms:
`telegram = 7` means the same as `ids = {telegram = 7}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from whet.channels.loading import is_known, missing_package
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values

F = TypeVar("F", bound=msgspec.Struct)
Ids = dict[str, str | int]
"""A person's user ids, by platform."""
_WORKSPACE_IDS = frozenset(("slack",))
"""The platforms whose user ids are unique in one workspace only."""


def convert_tables(
    raw: Mapping[str, Any], file: type[F], channel: type[msgspec.Struct], person: type[msgspec.Struct]
) -> F:
    """Convert a file's tables to `file`, the type of the whole file.

    `channel` is the type of a channel, whose field `settings` gets the platform's fields. `person` is the
    type of a person, whose field `ids` gets the ids. Raises ConfigError if an id is for an unknown platform,
    and msgspec.ValidationError for other errors.
    """
    tables: Any = dict(raw)
    kinds: list[object] = []
    if isinstance(channels := raw.get("channel"), list):
        entries = [_gather(table, channel, "settings") for table in cast(list[Any], channels)]
        kinds = [cast(dict[str, Any], entry).get("kind") for entry in entries if isinstance(entry, dict)]
        tables["channel"] = entries
    if isinstance(people := raw.get("people"), dict):
        people_tables = cast(dict[str, Any], people).items()
        tables["people"] = {
            name: _gather(table, person, "ids", person=name, kinds=kinds) for name, table in people_tables
        }
    return from_values(tables, file)


def ids_of(ids: Ids) -> dict[str, str]:
    """Return a person's ids as texts, without empty ones."""
    return {kind: str(user) for kind, user in ids.items() if str(user)}


def written_id(channel: str, user: str, kinds: Mapping[str, str]) -> str:
    """Return a user's id as it is written in the file. `kinds` are the platforms of all channels by name.

    The channel's name comes first if the file has several channels of a platform whose ids are unique in
    one workspace only.
    """
    return f"{channel}:{user}" if _needs_channel(kinds[channel], kinds) else user


def check_ids(people: Mapping[str, Ids], kinds: Mapping[str, str]) -> None:
    """Raise ConfigError if an id needs a channel's name in front of it."""
    for person, ids in people.items():
        for kind, user in ids_of(ids).items():
            names = [name for name, channel_kind in kinds.items() if channel_kind == kind]
            if _needs_channel(kind, kinds) and user.partition(":")[0] not in names:
                raise ConfigError(
                    f"people.{person}: {kind} = {user!r} does not say in which workspace",
                    hint=f'write the channel\'s name in front: {kind} = "{names[0]}:{user}"',
                )


def _needs_channel(kind: str, kinds: Mapping[str, str]) -> bool:
    return kind in _WORKSPACE_IDS and [*kinds.values()].count(kind) > 1


def _gather(
    table: Any,
    table_type: type[msgspec.Struct],
    into: str,
    *,
    person: str = "",
    kinds: Sequence[object] = (),
) -> Any:
    """Move the fields that `table_type` does not have into the table `into`.

    If `person` is a name, they are the person's ids, and each must be for a known platform. `kinds` are the
    platforms of the file's channels.
    """
    if not isinstance(table, dict):
        return table
    fields = dict(cast(dict[str, Any], table))
    field_names = {field.name for field in msgspec.structs.fields(table_type)}
    extra_fields = {name: fields.pop(name) for name in [*fields] if name not in field_names}
    for name in extra_fields if person else ():
        if not is_known(name):
            if name in kinds:
                raise missing_package(name)
            raise ConfigError(f"people.{person}: `{name}` is neither a platform nor a setting")
    inner = fields.get(into, {})
    return {
        **fields,
        into: {**extra_fields, **cast(dict[str, Any], inner)} if isinstance(inner, dict) else inner,
    }
