"""The format that the gateway's file and the confirmation service's file share: `[[channel]]` and
`[people.NAME]`.

Further fields in a channel's table belong to its platform. Further fields in a person's table are ids on
platforms: `telegram = 7` means the same as `ids = {telegram = 7}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from whet.channels.loading import is_known
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values

F = TypeVar("F", bound=msgspec.Struct)
Ids = dict[str, str | int]
"""A person's user ids, by platform."""


def convert_tables(
    raw: Mapping[str, Any], file: type[F], channel: type[msgspec.Struct], person: type[msgspec.Struct]
) -> F:
    """Read a file's tables. `channel` has a field `settings` for its platform's fields, `person` has a field
    `ids`.

    Raises ConfigError if an id is for an unknown platform, msgspec.ValidationError for other errors.
    """
    tables: Any = dict(raw)
    if isinstance(channels := raw.get("channel"), list):
        tables["channel"] = [_gather(table, channel, "settings") for table in cast(list[Any], channels)]
    if isinstance(people := raw.get("people"), dict):
        people_tables = cast(dict[str, Any], people).items()
        tables["people"] = {name: _gather(table, person, "ids", is_id=name) for name, table in people_tables}
    return from_values(tables, file)


def ids_of(ids: Ids) -> dict[str, str]:
    """Return a person's ids as texts, without empty ones."""
    return {kind: str(user) for kind, user in ids.items() if str(user)}


def _gather(table: Any, shape: type[msgspec.Struct], into: str, *, is_id: str = "") -> Any:
    """Move the fields that `shape` does not have into the table `into`. If they are ids of a person
    (`is_id`), each must be for a known platform."""
    if not isinstance(table, dict):
        return table
    fields = dict(cast(dict[str, Any], table))
    field_names = {field.name for field in msgspec.structs.fields(shape)}
    extra_fields = {name: fields.pop(name) for name in [*fields] if name not in field_names}
    for name in extra_fields if is_id else ():
        if not is_known(name):
            raise ConfigError(f"people.{is_id}: `{name}` is neither a platform nor a setting")
    inner = fields.get(into, {})
    return {
        **fields,
        into: {**extra_fields, **cast(dict[str, Any], inner)} if isinstance(inner, dict) else inner,
    }
