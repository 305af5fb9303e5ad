"""Plugins written to a home and loaded as the program does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.plugins.load import LoadedPlugins, PluginHost, load_plugins


def write(
    home: Path, name: str, code: str, *, manifest: str | None = "", files: dict[str, str] | None = None
) -> Path:
    """Write a plugin's folder; manifest "" makes a small one, None none."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(dedent(code))
    if manifest is not None:
        text = manifest or f"name: {name.rpartition('/')[2]}\nversion: 1.2\n"
        (folder / "plugin.yaml").write_text(text)
    for file, content in (files or {}).items():
        (folder / file).write_text(dedent(content))
    return folder


@contextmanager
def loading(
    home: Path, *enabled: str, host: PluginHost | None = None, **settings: Any
) -> Iterator[LoadedPlugins]:
    wanted = PluginSettings(enabled=enabled, **settings)
    with closing(load_plugins(Home(home), wanted, os.environ, host or PluginHost())) as loaded:
        yield loaded


def reasons(loaded: LoadedPlugins) -> str:
    """Every problem, a line each."""
    return "\n".join(problem.line for problem in loaded.problems)


TOOL = """
    def register(ctx):
        ctx.register_tool(name="{name}", toolset="extra", schema={{"name": "x"}}, handler=lambda args: "ok")
"""
