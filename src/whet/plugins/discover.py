"""Find plugins: in folders of the home, in folders of the project, in installed packages.

Nothing is imported. If two have the same name, a package's wins over the project's, and that over the home's.
Within one source, the second plugin of a name is named by its path instead. A folder that is not a plugin may
contain plugin folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal

import msgspec

from whet.contract.errors import PluginError
from whet.plugins.manifest import Manifest, manifest_file, read_manifest, slug_of
from whet.plugins.parts import Problem

MEMORY_GROUP = "hermes_agent.memory_providers"
WHET_GROUP = "whet.plugins"
GROUPS = (MEMORY_GROUP, "hermes_agent.plugins", WHET_GROUP)
"""The entry-point groups of installed packages. If one name is in several groups, the last wins."""
Source = Literal["home", "project", "package"]
# Context engines written for Hermes Agent live in this folder and may have no manifest.
_ENGINE_FOLDER = "context_engine"


class FoundPlugin(msgspec.Struct, frozen=True):
    """A plugin's source: a folder, or an installed package's entry point. `key` is its path below the plugins
    folder, or the entry point's name."""

    key: str
    manifest: Manifest
    source: Source
    folder: Path | None = None
    entry: EntryPoint | None = None

    @property
    def name(self) -> str:
        """The plugin's name in the settings."""
        return self.manifest.name

    @property
    def module(self) -> str:
        """The module name under which a folder is imported."""
        if (
            self.folder is not None
            and self.key.startswith(f"{_ENGINE_FOLDER}/")
            and not manifest_file(self.folder)
        ):
            return f"plugins.{_ENGINE_FOLDER}.{slug_of(self.folder.name)}"
        return f"hermes_plugins.{slug_of(self.key)}"


class Discovery(msgspec.Struct, frozen=True):
    """All plugins by name, and the problems with those that can't be read."""

    plugins: dict[str, FoundPlugin]
    problems: tuple[Problem, ...]

    def find_plugin(self, name: str) -> FoundPlugin | None:
        """Return the plugin with that name or key, or None."""
        plugin = self.plugins.get(name)
        return plugin or next((other for other in self.plugins.values() if other.key == name), None)


def discover(plugins: Path, project: Path | None = None) -> Discovery:
    """Search the home's `plugins` folder, the project's folder if given, and installed packages."""
    plugins_by_name: dict[str, FoundPlugin] = {}
    problems: list[Problem] = []
    folders: list[tuple[Source, Path]] = [("home", plugins)]
    if project is not None:
        folders.append(("project", project))
    for source, root in folders:
        for key, folder in _plugin_folders(root):
            try:
                manifest = read_manifest(folder)
            except PluginError as error:
                problems.append(Problem(error.plugin, error.message))
                continue
            earlier = plugins_by_name.get(manifest.name)
            if earlier is not None and earlier.source == source:
                # An author may have two kinds of plugin of one name, in separate folders.
                manifest = msgspec.structs.replace(manifest, name=key)
            plugins_by_name[manifest.name] = FoundPlugin(key, manifest, source, folder)
    for entry in (entry for group in GROUPS for entry in entry_points(group=group)):
        plugins_by_name[entry.name] = FoundPlugin(
            entry.name, _package_manifest(entry), "package", entry=entry
        )
    return Discovery(plugins_by_name, tuple(problems))


def _plugin_folders(root: Path) -> Iterator[tuple[str, Path]]:
    for folder in _list_subfolders(root):
        if _is_plugin(folder):
            yield folder.name, folder
            continue
        for inner in _list_subfolders(folder):
            if _is_plugin(inner):
                yield f"{folder.name}/{inner.name}", inner


def _list_subfolders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and path.name[:1] not in (".", "_"))
    except OSError:
        return []


def _is_plugin(folder: Path) -> bool:
    return manifest_file(folder) is not None or (folder / "__init__.py").is_file()


def _package_manifest(entry: EntryPoint) -> Manifest:
    package = entry.dist
    if package is None:
        return Manifest(entry.name)
    metadata = package.metadata
    return Manifest(
        name=entry.name,
        version=package.version,
        description=metadata["Summary"] or "" if "Summary" in metadata else "",
        author=metadata["Author"] or "" if "Author" in metadata else "",
    )
