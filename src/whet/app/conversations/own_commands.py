"""Slash commands that people write: prompt files in the home's `commands` and in the workspace's.

`commands/review.md` is /review, `commands/git/pr.md` is /git:pr. The home's files take precedence over the
workspace's, and built-in commands over both. A file's text is sent in a tag after the typed text, so that
memory never takes a repository's words for the person's. Files are read when they are used.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from whet.app.conversations.slash import SlashCommand
from whet.config import front_matter
from whet.config.paths import list_project_folders
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import flat, short
from whet.regular import read_regular

_MAX_BYTES = 100_000
_MAX_FILES = 500
_ABOUT_CHARS = 60
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}(?::[a-z0-9][a-z0-9_-]{0,63}){0,3}")
# $1.2M and $10 are amounts of money; a backslash escapes a placeholder.
_PLACEHOLDER = re.compile(r"(\\?)\$(?:ARGUMENTS\b|\{ARGUMENTS\}|([1-9])(?!\w|[.,]\d))")


class _Sender(Protocol):
    def send(self, text: str | None) -> None: ...


class PromptCommand(msgspec.Struct, frozen=True):
    """A prompt file.

    `inside` is the repository that the file must be in after links are resolved; None for the home's files.
    """

    name: str
    description: str
    argument_hint: str
    path: Path
    inside: Path | None = None

    def message(self, arguments: str) -> str:
        """Return the message for `/name arguments`. Raises ConfigError."""
        body = _fill_placeholders(_read_file(self.path, self.inside)[1], arguments)
        return f"/{self.name} {arguments}".rstrip() + "\n\n" + wrap_in_tag("command", f"\n{body}\n")

    def as_slash(self) -> SlashCommand[Any]:
        """Return the entry of the command table that sends its message."""

        async def run(chat: _Sender, arguments: str) -> None:
            chat.send(self.message(arguments))

        return SlashCommand(self.name, self.description, run, argument=self.argument_hint, remote=True)


def list_prompt_commands(root: Path | None, workspace: Path) -> list[PromptCommand]:
    """Return the commands of a home (None: skip it) and of a workspace, sorted by name. A folder nearer to
    the workspace takes precedence over those above it, up to the repository's root. The description of a
    broken file is its error."""
    commands: dict[str, PromptCommand] = {}
    folders: list[tuple[Path, Path | None]] = [(root / "commands", None)] if root else []
    project_folders = list_project_folders(workspace)
    for project in reversed(project_folders):
        if project == workspace.absolute() or project != Path.home():  # ~/.whet is the person's own
            folders.append((project / ".whet" / "commands", project_folders[0]))
    for folder, inside in folders:
        for name, path in _list_files(folder, inside):
            commands.setdefault(name, _read_command(name, path, inside))
    return [commands[name] for name in sorted(commands)]


def find_prompt_command(name: str, root: Path | None, workspace: Path) -> PromptCommand | None:
    """Return the command of that name, or None."""
    if not _NAME.fullmatch(name):
        return None
    return next((command for command in list_prompt_commands(root, workspace) if command.name == name), None)


def expand_command(text: str, root: Path | None, workspace: Path) -> str:
    """Return the message for a text that calls a prompt file; any other text is returned unchanged."""
    match = re.match(r"/(\S+)(.*)", text, re.DOTALL)
    command = find_prompt_command(match[1].lower(), root, workspace) if match else None
    return command.message(match[2].strip()) if match and command else text


def refuse_typo(name: str, root: Path | None, workspace: Path, *, is_alone: bool) -> None:
    """Raise NotFound if `/name`, which no prompt file has, looks like a command: it resembles an existing
    name, has a colon between two words, or is the whole text (`is_alone`). Otherwise it is the beginning of a
    sentence, such as `/api returns 500`."""
    names = [command.name for command in list_prompt_commands(root, workspace)]
    close = difflib.get_close_matches(name, names, 1, 0.7)
    if not (close or is_alone or (":" in name and _NAME.fullmatch(name))):
        return
    hint = (
        f"did you mean /{close[0]}? " if close else "the chat has commands of its own: `whet`, then /help; "
    )
    raise NotFound(
        f"there is no command /{name} outside of the chat", hint=f"{hint}//{name} sends it as text"
    )


def _list_files(folder: Path, inside: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the command names and paths of the prompt files in a folder.

    Skips files that are outside of `inside` after links are resolved: a repository must not send other files
    of the person to the model.
    """
    count = 0
    for current, folders, files in os.walk(folder):
        folders[:] = sorted(child for child in folders if not child.startswith("."))
        for file in sorted(files):
            path = Path(current, file)
            name = ":".join(path.relative_to(folder).with_suffix("").parts).lower()
            if path.suffix != ".md" or not _NAME.fullmatch(name):
                continue
            if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
                continue
            count += 1
            if count > _MAX_FILES:
                return
            yield name, path


def _read_command(name: str, path: Path, inside: Path | None) -> PromptCommand:
    try:
        values, body = _read_file(path, inside)
    except ConfigError as error:
        return PromptCommand(name, f"can't be used: {error.message}", "", path, inside)
    description = str(values.get("description") or next((x for x in body.splitlines() if x.strip()), ""))
    description = short(flat(description).lstrip("# "), _ABOUT_CHARS)
    hint = values.get("argument-hint", "")
    # YAML reads [file] as a list; it is meant literally.
    hint = " ".join(f"[{part}]" for part in hint) if isinstance(hint, list) else str(hint or "")  # pyright: ignore[reportUnknownVariableType]
    return PromptCommand(name, description, hint, path, inside)


def _read_file(path: Path, inside: Path | None) -> tuple[dict[str, Any], str]:
    """Return the fields of a prompt file's front matter, if any, and its text."""
    try:
        data = read_regular(path, _MAX_BYTES + 1, inside)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}", hint="fix its permissions") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(
            f"{path} is larger than {_MAX_BYTES:,} bytes",
            hint="shorten it, or let it name files for the model to read",
        )
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text.strip()
    try:
        head, body = front_matter.split_front_matter(text, str(path))
        return front_matter.read_fields(head), body.strip()
    except ConfigError as error:
        raise ConfigError(
            f"the front matter of {path} can't be read: {error.message}", hint=error.hint
        ) from error


def _fill_placeholders(body: str, arguments: str) -> str:
    """Replace the placeholders by the arguments; inserted text is not scanned again. A placeholder without an
    argument is kept, and so is one after a backslash, without the backslash, and an amount ($5): a number
    without the numbers before it. If nothing was replaced, the arguments are appended."""
    try:
        words = shlex.split(arguments)
    except ValueError:  # an apostrophe is not a quotation mark
        words = arguments.split()
    numbers = {int(match[2]) for match in _PLACEHOLDER.finditer(body) if match[2]}
    count = next(number for number in range(10) if number + 1 not in numbers)
    is_replaced = False

    def replace_match(match: re.Match[str]) -> str:
        nonlocal is_replaced
        if match[1]:
            return match[0][1:]
        number = int(match[2] or 0)
        if number > min(count, len(words)):
            return match[0]
        is_replaced = True
        return words[number - 1] if number else arguments

    text = _PLACEHOLDER.sub(replace_match, body)
    return text if is_replaced or not arguments else f"{text}\n\n{arguments}"
