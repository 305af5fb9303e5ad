"""Recognise paths, words and pieces of code that name files with keys or passwords.

Judges by their text, the folder they are read in, and, for patterns and links, the file system. Names
count, contents don't. The facts are in tables/secrets.toml.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.approval.paths import absolute_path, is_whets_own, resolve_links, within
from whet.approval.risk import CommandSetting, RiskScope
from whet.contract.texts import from_values
from whet.late import late_pattern

if TYPE_CHECKING:  # importing it loads the shell's parser
    from whet.shell.words import Word

_MAX_ENTRIES = 5_000
_PARTS = late_pattern(r"[\s'\"`()\[\]{}<>,;:=@+|&$]+")
# Paths in Whet's own home that may be shown.
_PUBLIC_IN_WHET_HOME = late_pattern(r"(/profiles/[^/]+)?/(skills|warm|logs|config\.yaml)(/|$)")


class SecretFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names and places of secrets; secrets.toml explains each list."""

    names: tuple[str, ...]
    places: tuple[str, ...]
    system: tuple[str, ...]
    open: tuple[str, ...]
    samples: tuple[str, ...]
    plain: tuple[str, ...]


@cache
def secret_facts() -> SecretFacts:
    """Return the facts of secrets.toml."""
    import tomllib  # noqa: PLC0415  2 ms of CPU, for a process that judges a command

    return from_values(
        tomllib.loads(Path(__file__).with_name("tables").joinpath("secrets.toml").read_text("utf-8")),
        SecretFacts,
    )


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    facts = secret_facts()
    secret = (
        rf"(?:(?:^|/)(?:{'|'.join(facts.names)})$|(?:^|/)(?:{'|'.join(facts.places)})(?:/|$)"
        rf"|^(?:{'|'.join(facts.system)})(?:/|$))"
    )
    public = rf"(?:^|/)(?:{'|'.join(facts.open)})$|^(?:{'|'.join(facts.open)})$"
    return re.compile(secret, re.IGNORECASE), re.compile(public, re.IGNORECASE)


def is_secret(path: str, scope: RiskScope | None = None) -> bool:
    """Return whether the file at this path usually holds keys or passwords. With a scope, this includes
    Whet's own home."""
    if scope is not None and is_whets_own(path, scope):
        return _PUBLIC_IN_WHET_HOME.match(path[len(scope.whet_home) :]) is None
    secret, public = _patterns()
    if scope is not None and within(path, "/root") and within(scope.home, "/root"):
        path = "~" + path.removeprefix("/root")  # root's own home is treated like other homes
    return secret.search(path) is not None and public.search(path) is None


def holds_secrets(path: str, scope: RiskScope) -> bool:
    """Return whether a folder, given by its absolute path, contains secrets: the home and the folders above
    it."""
    home = scope.home
    if within(home, path):
        return True
    system = ("/etc", "/proc", "/run", "/var/run")
    return path in (f"{home}/.config", f"{home}/.local", f"{home}/.local/share", *system)


def is_private_at_home(path: str, scope: RiskScope) -> bool:
    """Return whether a path lies in a dot entry of the home, and the workspace holds the home. The sandbox
    hides such files, too."""
    if not within(scope.home, scope.workspace) or not within(path, scope.home):
        return False
    return path[len(scope.home.rstrip("/")) + 1 :].startswith(".")


def opens_secrets(path: str, scope: RiskScope) -> bool:
    """Return whether reading this path, or files below it, may reveal secrets."""
    return (
        is_secret(path, scope)
        or holds_secrets(path, scope)
        or any(is_secret(entry.path, scope) for entry in _entries(path))
    )


def find_secret_in_word(word: Word, setting: CommandSetting) -> str:
    """Return `word` as typed if it names secrets, a folder above them, or a pattern for them, or else an
    empty string."""
    parts = _PARTS.split(word.text)
    hung = re.sub(r"^-[a-zA-Z](?=[\w.~/])", "", word.text)  # the file in `-f.env`
    texts = dict.fromkeys((word.text, *parts, *(part.lstrip("-") for part in parts), hung))
    return word.plain if any(text and _names_secret(text, word, setting) for text in texts) else ""


def _names_secret(text: str, word: Word, setting: CommandSetting) -> bool:
    scope = setting.scope
    if text.startswith("~/"):
        text = scope.home + text[1:]
    if is_secret(text, scope) or _asks_for_secrets(text) or leads_into_process(text):
        return True
    if (word.dynamic and text == word.text) or text.startswith("-"):
        return False
    full = absolute_path(text, setting.cwd)
    if full is None:
        return False
    if is_secret(full, scope) or is_secret(resolve_links(full), scope):
        return True
    if any(mark in text for mark in "*?["):
        return word.glob and _matches_secret(full, scope)
    return text == word.text and full != scope.workspace and holds_secrets(full, scope)


def leads_into_process(text: str) -> bool:
    """Return whether a path, of which parts may be known only at run time, leads into a process."""
    if os.path.basename(text) == "environ":  # also in a folder that is known only then
        return True
    path = re.sub("^/+", "/", os.path.normpath(text)) if text.startswith("/") else ""
    return path.startswith(("/proc/", "/dev/fd/")) and is_secret(path)


def find_secret_in_code(code: str, setting: CommandSetting) -> str:
    """Return the part of a program's text that names secrets, or an empty string."""
    for text in _PARTS.split(code[:100_000]):
        if re.search(r"[./_]|^\w+$", text) and _named_in_text(text, setting):
            return text
    return ""


def _named_in_text(text: str, setting: CommandSetting) -> bool:
    if text.startswith("~/"):
        text = setting.scope.home + text[1:]
    full = absolute_path(text, setting.cwd) or text
    return is_secret(text) or is_secret(full, setting.scope) or (text[:1] in "/." and _asks_for_secrets(text))


@cache
def _asks_for_secrets(pattern: str) -> bool:
    """Return whether a pattern is made for the names of secrets, wherever they are."""
    if not any(mark in pattern for mark in "*?["):
        return False
    facts: SecretFacts = secret_facts()
    name = pattern.rstrip("/").rsplit("/", 1)[-1]
    if is_secret(os.path.dirname(pattern)):
        return True
    if any(fnmatch.fnmatchcase(plain, name) for plain in facts.plain):
        return False
    return any(fnmatch.fnmatchcase(sample, name) for sample in facts.samples)


def _matches_secret(full: str, scope: RiskScope) -> bool:
    """Return whether a pattern in the path's last part matches an existing secret file."""
    folder, pattern = os.path.split(full)
    return any(
        is_secret(entry.path, scope) or (entry.is_symlink() and is_secret(resolve_links(entry.path), scope))
        for entry in _entries(folder)
        if fnmatch.fnmatchcase(entry.name, pattern)
        and (not entry.name.startswith(".") or pattern.startswith((".", "[")))
    )


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from islice(entries, _MAX_ENTRIES)
    except (OSError, ValueError):
        return
