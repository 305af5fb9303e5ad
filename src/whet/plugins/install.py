"""Install a plugin's folder into the home: copy a folder, or clone a git repository.

This takes two steps, so that a person can look at the plugin in between: `fetch` copies it next to the
plugins folder and reads it without running its code, and `move_into_place` moves it there. It is not enabled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound, PluginError, WhetError
from whet.log import mask
from whet.plugins.hermes import is_hermes_plugin
from whet.plugins.manifest import Manifest, manifest_file, read_manifest

_URL = re.compile(r"(https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_CLONE_LIMIT_S = 300.0
_MAX_BYTES = 200_000_000


class FetchedPlugin(msgspec.Struct, frozen=True):
    """A fetched plugin: its location, its manifest, and the files that would run."""

    folder: Path
    source: str
    commit: str
    manifest: Manifest
    files: int
    size_bytes: int
    python_files: tuple[str, ...]
    is_for_hermes: bool
    target: Path


def fetch(home: Home, source: str) -> FetchedPlugin:
    """Copy or clone `source` and read it. Then call `discard` or `move_into_place`. Raises WhetError."""
    home.ensure()
    temporary = Path(tempfile.mkdtemp(prefix=".plugin-", dir=home.root))
    try:
        folder = temporary / _folder_name(source)
        clone(source, folder) if is_git(source) else _copy(source, folder)
        return _read(home, source, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def move_into_place(fetched: FetchedPlugin) -> Path:
    """Move a fetched plugin into the plugins folder and return its path. Raises ConfigError."""
    try:
        fetched.target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.rename(fetched.folder, fetched.target)
    except OSError as error:
        raise ConfigError(f"can't write {fetched.target}: {error.strerror}") from error
    finally:
        discard(fetched)
    return fetched.target


def discard(fetched: FetchedPlugin) -> None:
    """Delete a fetched plugin."""
    shutil.rmtree(fetched.folder.parent, ignore_errors=True)


def _folder_name(source: str) -> str:
    last = re.split(r"[/:]", source.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "plugin"


def is_git(source: str) -> bool:
    """Return whether a source is a git repository rather than a folder."""
    return bool(_URL.fullmatch(source)) or (Path(source) / "HEAD").is_file() or source.endswith(".git")


def _copy(source: str, folder: Path) -> None:
    origin = Path(source).expanduser()
    if not origin.is_dir():
        raise NotFound(f"there is no folder {source}", hint="give a folder, or the URL of a git repository")
    try:
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc", ".venv", "node_modules")
        shutil.copytree(origin, folder, symlinks=True, ignore=skipped)
    except (OSError, shutil.Error) as error:
        raise ConfigError(f"can't copy {source}: {str(error)[:200]}") from error


def clone(source: str, folder: Path) -> None:
    """Clone a git repository without running any of its code. Raises WhetError."""
    # no hooks of the machine's templates, no question for a password, no download of large files
    command = ["git", "-c", "core.hooksPath=/dev/null", "clone", "--quiet", "--", source, str(folder)]
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_CLONE_LIMIT_S,
            check=False,
            env=environ,
        )
    except FileNotFoundError as error:
        raise WhetError("git is not installed", hint="install git, or give a folder") from error
    except subprocess.TimeoutExpired as error:
        raise WhetError(f"git did not finish in {_CLONE_LIMIT_S:g} s") from error
    if process.returncode != 0:
        text = process.stderr.decode(errors="replace").strip()
        last_line = text.splitlines()[-1] if text else f"code {process.returncode}"
        raise WhetError(f"git can't clone {mask(source)}: {mask(last_line)[:300]}")


def _read(home: Home, source: str, folder: Path) -> FetchedPlugin:
    if manifest_file(folder) is None and not (folder / "__init__.py").is_file():
        raise PluginError(
            "it holds neither plugin.yaml nor __init__.py, so it is not a plugin", plugin=folder.name
        )
    manifest = read_manifest(folder)
    target = home.root / "plugins" / manifest.name
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already", hint=f"to install it again: rm -r {target}")
    files = [path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts]
    for path in files:
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            where = path.relative_to(folder)
            raise PluginError(f"its link {where} leads out of its folder", plugin=manifest.name)
    plain = [path for path in files if path.is_file() and not path.is_symlink()]
    size_bytes = sum(path.stat().st_size for path in plain)
    if size_bytes > _MAX_BYTES:
        raise PluginError("it is larger than 200 MB", plugin=manifest.name)
    return FetchedPlugin(
        folder=folder,
        source=source,
        commit=_read_commit(folder),
        manifest=manifest,
        files=len(plain),
        size_bytes=size_bytes,
        python_files=tuple(sorted(str(p.relative_to(folder)) for p in plain if p.suffix == ".py")),
        is_for_hermes=is_hermes_plugin(folder),
        target=target,
    )


def _read_commit(folder: Path) -> str:
    if not (folder / ".git").is_dir():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    process = subprocess.run(command, capture_output=True, check=False, text=True)
    return process.stdout.strip() if process.returncode == 0 else ""
