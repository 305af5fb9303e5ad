"""Run git on a repository: locked against other programs, and without running programs that it configures."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from whet.contract.errors import ToolError
from whet.regular import read_regular_text
from whet.searchpath import trusted_path
from whet.tools.shell import command_environment

_TIMEOUT_S = 300
_AUTHOR = {
    "GIT_AUTHOR_NAME": "whet",
    "GIT_AUTHOR_EMAIL": "whet@localhost",
    "GIT_COMMITTER_NAME": "whet",
    "GIT_COMMITTER_EMAIL": "whet@localhost",
}
_GIT_LOCATIONS = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"}
)
_LOCKS: ContextVar[tuple[int, ...]] = ContextVar("locks that git inherits", default=())
_SETTINGS: ContextVar[tuple[tuple[str, str], ...]] = ContextVar(
    "settings by which git runs no programs", default=()
)
_DISABLED_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "core.askPass": "",
    "credential.helper": "",
}
_WRITTEN_PATHS = ("objects", "refs", "refs/whet", "refs/whet/helpers", "logs", "logs/refs", "logs/refs/whet",
                  "worktrees", "index", "packed-refs", "info", "objects/info", "objects/pack")  # fmt: skip
_MERGE_DRIVER = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"


@contextmanager
def lock_repository(repository: Path) -> Generator[None]:
    """Lock a repository against other threads and programs, until the last git started inside has ended.

    Git runs no programs of the repository meanwhile. Raises ToolError, also if git would write through a
    link.
    """
    folder = Path(run_git(repository, "rev-parse", "--absolute-git-dir").strip())
    common = run_git(repository, "rev-parse", "--git-common-dir").strip()
    for git_folder in {folder, (repository / common).resolve()}:
        refuse_links(git_folder)
    path = folder / "whet-merge.lock"
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise ToolError(
            f"{path} can't be opened: {error.strerror}", hint="remove it if it is a link"
        ) from error
    with os.fdopen(handle, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _LOCKS.set((lock.fileno(),))
        try:
            with disable_programs(repository):
                yield
        finally:
            _LOCKS.reset(before)


def refuse_links(git_folder: Path) -> None:
    """Raise ToolError if git would write through a link, which a command may have created to lead it
    elsewhere."""
    for name in _WRITTEN_PATHS:
        if (path := git_folder / name).is_symlink():
            raise ToolError(
                f"{path} is a link, and no helper's tree is made there", hint="replace it by a copy"
            )


@contextmanager
def disable_programs(tree: Path) -> Generator[None]:
    """Keep git inside the context from running programs that the settings of a working tree name.

    Each tree of a repository can have its own settings, for example by `includeIf "gitdir:..."`.
    """
    before = _SETTINGS.set(tuple(settings_without_programs(tree).items()))
    try:
        yield
    finally:
        _SETTINGS.reset(before)


def settings_without_programs(repository: Path) -> dict[str, str]:
    """Return settings that override the repository's filters, merge drivers and hooks.

    They may come from the repository's author or from a command, so git must not run them. Git then merges
    files by its own rules.
    """
    entries = run_git(repository, "config", "--list", "-z", "--show-scope", "--name-only").split("\0")
    keys = {
        key for scope, key in zip(entries[::2], entries[1::2], strict=False) if scope in ("local", "worktree")
    }
    settings: dict[str, str] = {}
    for key in keys:
        section, name = key.split(".", 1)[0], key.rsplit(".", 1)[-1]
        if section == "filter":
            settings[key] = "false" if name == "required" else ""
        elif section == "merge" and name == "driver":
            settings[key] = _MERGE_DRIVER
        elif section == "hook":
            settings[key.removesuffix(name) + "enabled"] = "false"
    return settings


def _setting_variables(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pass settings to git; `-c` can't pass a name with an equals sign."""
    count = int(usual.get("GIT_CONFIG_COUNT") or 0)
    variables: dict[str, str] = {}
    for number, (key, value) in enumerate({**_DISABLED_SETTINGS, **dict(_SETTINGS.get())}.items(), count):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**variables, "GIT_CONFIG_COUNT": str(count + len(variables) // 2)}


def run_git(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = b"",
    check: bool = True,
) -> str:
    """Run git and return its output. Raises ToolError if it exits with an error, unless `check` is False."""
    data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
    result = run_git_process(folder, arguments, env, data)
    if check and result.returncode:
        raise ToolError(f"git {arguments[0]}: {last_error_line(result)}", hint="git status says more")
    return result.stdout.decode("utf-8", "surrogateescape")


def run_git_process(
    folder: Path, arguments: tuple[str, ...], env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git without checking its exit code. Raises ToolError if it can't be run."""
    usual = {
        name: value for name, value in command_environment(os.environ).items() if name not in _GIT_LOCATIONS
    }
    main_repository = _find_main_repository(folder)
    path = trusted_path(folder) if main_repository is None else trusted_path(folder, main_repository)
    set_here = {**_AUTHOR, **_setting_variables(usual), "LC_ALL": "C", "PATH": path}
    environment = {**usual, **set_here, "GIT_ALLOW_PROTOCOL": "https", **(env or {})}
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            pass_fds=_LOCKS.get(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"git can't be run: {error}", hint="check that it runs: git --version") from error


def _find_main_repository(worktree: Path) -> Path | None:
    """Return the repository that a linked working tree belongs to, or None."""
    try:
        text = read_regular_text(worktree / ".git", 4_096)
    except OSError:
        return None
    path = text.partition("gitdir:")[2].partition("/.git/")[0].strip()
    return Path(path) if path else None


def last_error_line(process: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line that git wrote to its error output, or its exit code."""
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit {process.returncode}"


def list_nested_repositories(root: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the paths of submodules and of other repositories in a working tree."""
    tracked = run_git(root, "ls-files", "-s", "-z", ":/", env=environment).split("\0")
    others = ("ls-files", "--others", "--exclude-standard", "-z", ":/")
    untracked = run_git(root, *others, env=environment).split("\0")
    nested = [name.rstrip("/") for name in untracked if name.endswith("/")]
    for entry in filter(None, tracked):
        name = entry.partition("\t")[2]
        # Git does not list a repository that has replaced a tracked file, and can't add it.
        if entry.startswith("160000 ") or _is_repository(root / name):
            nested.append(name)
    return nested


def _is_repository(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode) and os.path.lexists(path / ".git")
    except OSError:
        return False
