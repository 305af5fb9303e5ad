"""Warm templates for programs: build, list, load and delete them without the command line or the tool.

Each call opens the home's store and closes it. `home` is a home's folder; None means the home that `whet`
uses.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from whet.clock import SystemClock
from whet.config.paths import Home, find_home
from whet.config.secrets import load_secrets
from whet.store.database import open_store
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.template import Template
from whet.warm.template_store import Built, Listed, WarmTemplates


def build_warm(
    name: str,
    *,
    description: str = "",
    tags: Sequence[str] = (),
    scope: MiningScope | None = None,
    with_changes: bool = False,
    home: Path | str | None = None,
) -> Built:
    """Mine the stored sessions and write the template `name`; `scope` narrows them. Raises WhetError."""
    options = BuildOptions(name=name, description=description, tags=tuple(tags), with_changes=with_changes)
    with _open_templates(home) as templates:
        return templates.build(options, scope or MiningScope())


def list_warm(*, home: Path | str | None = None) -> list[Listed]:
    """Return every template with its measured effect. Raises WhetError."""
    with _open_templates(home) as templates:
        return templates.list_rows()


def load_warm(name: str, *, home: Path | str | None = None, apply_to: Path | str | None = None) -> Template:
    """Return a template. With `apply_to`, the next session in that folder starts with it; this is durable on
    return. Raises WhetError."""
    with _open_templates(home) as templates:
        if apply_to is None:
            return templates.load(name)
        return templates.apply(name, str(Path(apply_to).resolve()))


def delete_warm(name: str, *, home: Path | str | None = None) -> None:
    """Remove a template. Raises WhetError."""
    with _open_templates(home) as templates:
        templates.delete(name)


@contextmanager
def _open_templates(folder: Path | str | None) -> Generator[WarmTemplates]:
    home, clock = Home(Path(folder)) if folder is not None else find_home(), SystemClock()
    home.ensure()
    load_secrets(home, os.environ)  # so that the redaction knows their values
    with closing(open_store(home, clock)) as database:
        yield WarmTemplates(home, database, clock)
