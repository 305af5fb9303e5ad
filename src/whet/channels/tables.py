"""The shape that the gateway's file and the confirmation service's share: `[[channel]]` and `[people.NAME]`.

What stands in a channel's table besides the reader's own fields is its platform's, and what stands in a
person's are their ids on platforms: `telegram = 7` says the same as `ids = {telegram = 7}`.
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
"""Somebody's user ids, by platform."""


def convert_tables(
    raw: Mapping[str, Any], file: type[F], channel: type[msgspec.Struct], person: type[msgspec.Struct]
) -> F:
    """Read a file's tables. `channel` has a field `settings` for its platform's part, `person` one `ids`.

    Raises ConfigError for an id on a platform that there is not, msgspec.ValidationError for the rest.
    """
    tables: Any = dict(raw)
    if isinstance(channels := raw.get("channel"), list):
        tables["channel"] = [_gathered(one, channel, "settings") for one in cast(list[Any], channels)]
    if isinstance(people := raw.get("people"), dict):
        named = cast(dict[str, Any], people).items()
        tables["people"] = {name: _gathered(one, person, "ids", is_id=name) for name, one in named}
    return from_values(tables, file)


def ids_of(ids: Ids) -> dict[str, str]:
    """Give somebody's ids as texts, without those left empty."""
    return {kind: str(user) for kind, user in ids.items() if str(user)}


def _gathered(table: Any, shape: type[msgspec.Struct], into: str, *, is_id: str = "") -> Any:
    """Move what `shape` has no field for into the table `into`; where these are ids of somebody (`is_id`),
    each has to be on a platform that there is."""
    if not isinstance(table, dict):
        return table
    fields = dict(cast(dict[str, Any], table))
    own = {field.name for field in msgspec.structs.fields(shape)}
    rest = {name: fields.pop(name) for name in [*fields] if name not in own}
    for name in rest if is_id else ():
        if not is_known(name):
            raise ConfigError(f"people.{is_id}: `{name}` is neither a platform nor a setting")
    inner = fields.get(into, {})
    return {**fields, into: {**rest, **cast(dict[str, Any], inner)} if isinstance(inner, dict) else inner}
