"""The format that the gateway's file and the confirmation service's file share: `[[channel]]` and
`[people.NAME]`.

Further fields in a channel's table belong to its platform. Further fields in a person's table are ids on
platforms: `telegram = 7` means the same as `ids = {telegram = 7}`.
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
_LOCAL_IDS = frozenset(("slack",))
"""The platforms whose user ids are unique in one workspace only."""


def convert_tables(
    raw: Mapping[str, Any], file: type[F], channel: type[msgspec.Struct], person: type[msgspec.Struct]
) -> F:
    """Read a file's tables. `channel` has a field `settings` for its platform's fields, `person` has a field
    `ids`.

    Raises ConfigError if an id is for an unknown platform, msgspec.ValidationError for other errors.
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
            name: _gather(table, person, "ids", is_id=name, kinds=kinds) for name, table in people_tables
        }
    return from_values(tables, file)


def ids_of(ids: Ids) -> dict[str, str]:
    """Return a person's ids as texts, without empty ones."""
    return {kind: str(user) for kind, user in ids.items() if str(user)}


def written_id(channel: str, user: str, kinds: Mapping[str, str]) -> str:
    """Return a user's id as the file has it: after the channel's name if the platform's ids are unique in one
    workspace only, and the file has several of its channels. `kinds` are the platforms of all channels."""
    return f"{channel}:{user}" if _needs_channel(kinds[channel], kinds) else user


def check_ids(people: Mapping[str, Ids], kinds: Mapping[str, str]) -> None:
    """Raise ConfigError if an id does not say on which of several channels it is."""
    for person, ids in people.items():
        for kind, user in ids_of(ids).items():
            names = [name for name, its_kind in kinds.items() if its_kind == kind]
            if _needs_channel(kind, kinds) and user.partition(":")[0] not in names:
                raise ConfigError(
                    f"people.{person}: {kind} = {user!r} does not say in which workspace",
                    hint=f'write the channel\'s name in front: {kind} = "{names[0]}:{user}"',
                )


def _needs_channel(kind: str, kinds: Mapping[str, str]) -> bool:
    return kind in _LOCAL_IDS and [*kinds.values()].count(kind) > 1


def _gather(
    table: Any, shape: type[msgspec.Struct], into: str, *, is_id: str = "", kinds: Sequence[object] = ()
) -> Any:
    """Move the fields that `shape` does not have into the table `into`. If they are ids of a person
    (`is_id`), each must be for a known platform. `kinds` are those of the file's channels."""
    if not isinstance(table, dict):
        return table
    fields = dict(cast(dict[str, Any], table))
    field_names = {field.name for field in msgspec.structs.fields(shape)}
    extra_fields = {name: fields.pop(name) for name in [*fields] if name not in field_names}
    for name in extra_fields if is_id else ():
        if not is_known(name):
            if name in kinds:
                raise missing_package(name)
            raise ConfigError(f"people.{is_id}: `{name}` is neither a platform nor a setting")
    inner = fields.get(into, {})
    return {
        **fields,
        into: {**extra_fields, **cast(dict[str, Any], inner)} if isinstance(inner, dict) else inner,
    }
