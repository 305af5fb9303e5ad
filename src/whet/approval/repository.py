"""Find settings of a repository that make git run programs: diff drivers, filters, helpers, transports.

The settings are read through git, which runs nothing while listing them. Settings of the user and the
machine are not the repository's. Git enters submodules and nested repositories, so these are checked too.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from whet.approval.git_config import parse_git_config
from whet.late import late_pattern
from whet.regular import read_regular
from whet.sandbox.gitlinks import git_folder, gitlinks
from whet.searchpath import trusted_path
from whet.shell.programs import ProgramWords, read_git_verbs

_LIMIT_S = 5
_MAX_INNER = 500
_MAX_LINKS = 20_000
_MAX_DEPTH = 3
_PROGRAM_SETTINGS = late_pattern(
    r"diff\.external|diff\..+\.(command|textconv|external)|filter\..+\.(clean|smudge|process)|merge\..+\.driver"
    r"|(hook|gpg|trailer|gc|imap)\..*(command|cmd|program|hook|tunnel)|sendemail\.smtpserver"
    r"|core\.(fsmonitor|sshcommand|gitproxy|alternaterefscommand|askpass)"
    r"|credential\.(.+\.)?helper"
    r"|remote\..+\.(vcs|uploadpack|receivepack)|protocol\.(.+\.)?allow|submodule\..+\.update|interactive\.difffilter"
    r"|(difftool|mergetool|man|browser|guitool)\..+\.(cmd|path)|sequence\.editor|tar\..+\.command"
    r"|web\.browser|help\.(browser|htmlpath)|(remote|url)\..*\bext::.*|uploadpack\.packobjectshook|sendemail\..*cmd"
)
_PROMISOR_SETTINGS = late_pattern(r"extensions\.partialclone|remote\..+\.(promisor|partialclonefilter)")
_HARMLESS = late_pattern(
    r"|true|false|git[- ]lfs [\w %./'\"=-]*"
    r"|checkout|rebase|merge|none|user|always|never|osxkeychain|cache|store"
)
_DEPRECATED = ProgramWords("whatchanged")
_EXCHANGING = "--list-cmds=list-synchingrepositories,list-synchelpers,list-foreignscminterface"
"""Lists git's commands that exchange commits with other repositories, besides fetch, pull and push."""
_POINTER = "gitdir: "
_MAX_BYTES = 100_000_000


def find_risky_settings(
    folder: str, verb: str = "", *, reads: bool = True, git_dir: str = ""
) -> tuple[str, str]:
    """Return a setting of the repository at `folder` that would make git run a program, and for a verb that
    only `reads` one that makes git fetch missing objects from a host. Each is `key=value`, or an empty
    string.

    `verb` may be an alias. Unless it only reads, hooks that the repository configures count. Links are
    followed, because git looks for the repository above the folder that it really runs in.
    """

    def matches(key: str, value: str) -> bool:
        return _runs_program(verb, reads, key, value) or (reads and _fetches_missing(key, value))

    fetching = ""
    try:
        folder, git_dir = os.path.realpath(folder), os.path.realpath(git_dir) if git_dir else ""
        for key, value in _find_settings(folder, git_dir, matches, 0):
            if not _fetches_missing(key, value) or _runs_program(verb, reads, key, value):
                return f"{key}={value}", fetching
            fetching = fetching or f"{key}={value}"
    except (OSError, ValueError, struct.error, subprocess.SubprocessError) as error:
        return f"settings that can't be read ({error})", ""
    return "", fetching


def remote_urls(folder: str) -> list[str]:
    """Return the addresses of the remotes of the repository at `folder`, or an empty list if they can't be
    read."""
    try:
        git_path = _find_git_path(os.path.realpath(folder))
        parsed = [] if git_path == "" else _parse_settings(git_path) if git_path else None
        settings = _read_settings(folder, "") if parsed is None else parsed
        return [value for key, value in settings if key.startswith("remote.") and key.endswith("url")]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def list_git_commands(workspace: str) -> frozenset[str]:
    """Return the commands of git that do the work of no other one: its own, which no alias replaces, and
    installed ones (`git-lfs`), but not those that exchange commits unless a table describes them (`send-pack`
    pushes). If no git outside `workspace` lists them, return those of the table."""
    try:
        return _list_git_commands(trusted_path(workspace))
    except (OSError, ValueError, subprocess.SubprocessError):  # asked again for the next command
        return frozenset(read_git_verbs()) - _DEPRECATED


@cache
def _list_git_commands(path: str) -> frozenset[str]:
    """Return git's commands. Raises OSError, ValueError and SubprocessError, which are not cached."""
    listed = _git("/", ["--list-cmds=main,others"], path).split()
    exchanging = set(_git("/", [_EXCHANGING], path).split()) - set(read_git_verbs())
    names = frozenset(name for name in listed if not name.startswith("remote-")) - exchanging
    try:
        return names - set(_git("/", ["--list-cmds=deprecated"], path).split())  # these can be aliases
    except ValueError:
        return names  # git before 2.52: an alias replaces none


def _find_settings(
    folder: str, git_dir: str, matches: Callable[[str, str], bool], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield the settings that match, of a repository and the submodules that git enters."""
    git_path = git_dir or _find_git_path(folder)
    if git_path == "":
        return
    settings = _parse_settings(git_path) if git_path else None
    if settings is None or any(matches(key, value) for key, value in settings):
        settings = list(_read_settings(folder, git_dir))
        for key, value in settings:
            if matches(key, value):
                yield key, value
    if git_path is None or _works_elsewhere(git_path, settings):
        submodules = _ask_for_submodules(folder, git_dir)
    else:
        submodules = _find_submodules(folder, git_path)
    if len(submodules) > _MAX_INNER or (submodules and depth == _MAX_DEPTH):
        yield "submodules", "too many, or too deep, to read the settings of all"
        return
    for inner in submodules:
        yield from _find_settings(inner, "", matches, depth + 1)


def _runs_program(verb: str, reads: bool, key: str, value: str) -> bool:
    if key == f"alias.{verb.lower()}":
        return value.startswith("!")
    if key == "core.hookspath":
        return not reads
    if key == "alias.lfs":
        return True  # the filters that are harmless run `git lfs`, which may not be installed
    if key.startswith(("remote.", "url.")) and "ext::" in key + value:
        return True
    return _PROGRAM_SETTINGS.fullmatch(key) is not None and _HARMLESS.fullmatch(value) is None


def _fetches_missing(key: str, value: str) -> bool:
    return _PROMISOR_SETTINGS.fullmatch(key) is not None and value.lower() not in ("false", "no", "off", "0")


def _find_git_path(folder: str) -> str | None:
    """Return the folder or file by which git finds the repository at or above `folder`, or an empty string if
    there is none. None: only git can tell."""
    while True:
        dotted = os.path.join(folder, ".git")
        if os.path.lexists(dotted):
            is_usual = all(os.path.isdir(os.path.join(dotted, name)) for name in ("objects", "refs"))
            return dotted if os.path.isfile(dotted) or is_usual else None
        if os.path.lexists(os.path.join(folder, "HEAD")):
            return None
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _parse_settings(git_path: str) -> list[tuple[str, str]] | None:
    """Return the repository's settings from its files, also those of a linked working tree or a submodule,
    whose `.git` is a file. None: only git can tell."""
    folder = git_path
    if not os.path.isdir(git_path):
        text = os.fsdecode(_read_bytes(git_path))
        folder = os.path.join(os.path.dirname(git_path), text.removeprefix(_POINTER).rstrip("\r\n"))
        if not text.startswith(_POINTER) or not os.path.isdir(folder):
            return None
    shared = os.fsdecode(_read_bytes(os.path.join(folder, "commondir"))).rstrip("\r\n")
    settings: list[tuple[str, str]] = []
    for path in (os.path.join(folder, shared, "config"), os.path.join(folder, "config.worktree")):
        parsed = parse_git_config(_read_bytes(path))
        if parsed is None:
            return None
        settings += parsed
    return settings


def _read_bytes(path: str) -> bytes:
    try:
        return read_regular(path, _MAX_BYTES)
    except FileNotFoundError:
        return b""


def _read_settings(folder: str, git_dir: str) -> Iterator[tuple[str, str]]:
    """Yield the repository's own settings as (key in lower case, value)."""
    where = [f"--git-dir={git_dir}"] if git_dir else []
    fields = _git(folder, [*where, "config", "--list", "-z", "--show-scope"]).split("\0")
    for scope, setting in zip(fields[::2], fields[1::2], strict=False):
        if scope in ("local", "worktree"):
            key, _, value = setting.partition("\n")
            yield key.lower(), value


def _works_elsewhere(git_path: str, settings: Iterable[tuple[str, str]]) -> bool:
    """Return whether `core.worktree` names another folder than the one that holds `.git`."""
    top = os.path.dirname(git_path)
    trees = [os.path.join(git_folder(top), value) for key, value in settings if key == "core.worktree"]
    return any(os.path.realpath(tree) != os.path.realpath(top) for tree in trees)


def _find_submodules(folder: str, git_path: str) -> Sequence[str]:
    """Return the folders of a repository's submodules. Raises ValueError if it has too many to look at."""
    top = os.path.dirname(git_path)
    own_folder = git_folder(top)
    is_split = any(name.startswith("sharedindex.") for name in os.listdir(own_folder))
    if is_split or os.path.basename(git_path) != ".git":
        return _ask_for_submodules(folder, git_path)
    return _keep_existing(top, gitlinks(_read_bytes(f"{own_folder}/index")))


def _ask_for_submodules(folder: str, git_dir: str) -> Sequence[str]:
    """Return the same, as git itself finds them."""
    where = [f"--git-dir={git_dir}"] if git_dir else []
    try:
        top = _git(folder, [*where, "rev-parse", "--show-toplevel"]).removesuffix("\n")
    except ValueError:
        return ()  # it has no working tree, so git enters no submodule
    rows = _git(top, [*where, "ls-files", "--stage", "-z", "--full-name"]).split("\0")
    return _keep_existing(top, (row.partition("\t")[2] for row in rows if row.startswith("160000 ")))


def _keep_existing(top: str, names: Iterable[str]) -> Sequence[str]:
    inner = list(islice(names, _MAX_LINKS + 1))
    if len(inner) > _MAX_LINKS:
        raise ValueError(f"more than {_MAX_LINKS} submodules")
    folders = [os.path.join(top, name) for name in inner]
    return [inside for inside in folders if os.path.lexists(os.path.join(inside, ".git"))]


def _git(folder: str, arguments: Sequence[str], path: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *arguments],
        cwd=folder,
        env={**environment, "GIT_OPTIONAL_LOCKS": "0", "PATH": path or trusted_path(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip()[:200] or "git failed")
    return done.stdout.decode("utf-8", "surrogateescape")
