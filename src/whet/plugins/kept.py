"""Store the values that a plugin keeps between runs (`ctx.state`), as JSON in `plugin-data/NAME/state.json`.

Changes are durable on return, and several programs may make them at the same time. A file that can't be read
is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from whet.config.paths import lock_folder, replace_file
from whet.contract.errors import PluginError
from whet.contract.texts import NOT_JSON, from_json

DATA = "plugin-data"
_MAX_BYTES = 10 * 1024 * 1024
_FILE = "state.json"


class PersistentValues:
    """One plugin's values by key, in its folder in the home. Raises PluginError if they can't be read."""

    def __init__(self, plugin: str, folder: Path) -> None:
        self._plugin = plugin
        self._folder = folder

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` if the key does not exist."""
        return self._read().get(key, default)

    def all(self) -> dict[str, Any]:
        """Return all values by key."""
        return self._read()

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value. The file holds at most 10 MiB."""
        self._change(lambda values: values.__setitem__(str(key), value))

    def delete(self, key: str) -> None:
        """Delete a value if the key exists."""
        self._change(lambda values: values.pop(key, None))

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        with lock_folder(self._folder):
            values = self._read()
            change(values)
            try:
                text = msgspec.json.encode(values)
            except (TypeError, RecursionError) as error:
                raise self._error(f"JSON can't hold it: {error}") from error
            if len(text) > _MAX_BYTES:
                raise self._error(f"it would be {len(text):,} bytes; {_MAX_BYTES:,} fit")
            replace_file(self._folder / _FILE, text.decode(), mode=0o600)

    def _read(self) -> dict[str, Any]:
        try:
            return from_json((self._folder / _FILE).read_bytes(), dict[str, Any])
        except FileNotFoundError:
            return {}
        except (OSError, *NOT_JSON) as error:
            raise self._error(
                f"{self._folder / _FILE} can't be read and is left as it is: {error}"
            ) from error

    def _error(self, reason: str) -> PluginError:
        return PluginError(reason, plugin=self._plugin, hook="state")
