"""A person's own tasks: a prompt, the files it starts from, and a shell command that judges the result.

Read from a YAML file; each error message names its task. Nothing is run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import from_values

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HINT = (
    "below tasks: each is - name: NAME with prompt: TEXT and verify: COMMAND; optional are files and setup"
)
Text = Annotated[str, msgspec.Meta(min_length=1)]


class OwnTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task. `verify` runs with bash in the task's folder after the turn; exit 0 is success.

    `files` is a folder, relative to the tasks file, whose copy the task starts in; `setup` runs there before
    the turn. `secrets` are strings that must reach no other task.
    """

    name: str
    prompt: Text
    verify: Text
    files: str = ""
    setup: str = ""
    secrets: tuple[Text, ...] = ()


class TaskFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a tasks file. Tasks are done in this order."""

    tasks: tuple[OwnTask, ...]


def read_tasks(path: Path) -> tuple[OwnTask, ...]:
    """Read a tasks file. Raises NotFound, and ConfigError with the position of the mistake."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NotFound(f"can't read {path}: {error.strerror}", hint=_HINT) from error
    try:
        tasks = from_values(msgspec.yaml.decode(text), TaskFile).tasks
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}", hint=_HINT) from error
    if not tasks:
        raise ConfigError(f"{path} has no tasks", hint=_HINT)
    names: set[str] = set()
    for task in tasks:
        if not _NAME.fullmatch(task.name) or task.name in names:
            problem = "is there twice" if task.name in names else "is not a name (a-z, 0-9, . _ -)"
            raise ConfigError(f"{path}: {task.name!r} {problem}")
        names.add(task.name)
        if task.files and not (path.parent / task.files).is_dir():
            raise ConfigError(f"{path}: the files of {task.name}, {task.files}, are not a folder")
    return tasks
