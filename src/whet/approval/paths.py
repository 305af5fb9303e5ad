"""Classify the location of a file, for the risk of reading, writing or deleting it.

Zones are determined by the path and, for links, the file system: the workspace, temporary folders,
start-up files and keys in the home, the system, disks. This module does not interpret shell syntax or
rules.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from whet.approval.risk import Level, RiskScope
from whet.sandbox.policy import is_persons_folder

Zone = Literal[
    "null",
    "workspace",
    "temp",
    "hooks",
    "whet",
    "startup",
    "system",
    "root",
    "disk",
    "network",
    "outside",
    "unknown",
]

# Texts rather than compiled patterns: they are compiled on first use, and most session starts don't need
# them.
_NULL = r"/dev/(null|stdout|stderr|stdin|tty|zero|full|u?random|fd(/\d*)?)"
_DISK = r"/dev/(r?disk\d|[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|md\d|dm-\d|mapper/|loop\d|mem$|kmem$|port$)"
_NETWORK = r"/dev/(tcp|udp)/"
_SYSTEM = (
    r"/(etc|usr|bin|sbin|lib\w*|boot|sys|proc|dev|var|opt|root|srv|run|System|Library|Applications|private)"
    r"(/|$)"
)
_TOP = r"/([^/]+)?"
_STARTUP = (
    r"\.(ssh|gnupg|aws|kube|docker|config/(autostart|systemd|fish|git|gh|gcloud)|local/(bin|share/systemd))(/|$)"
    r"|\.(bash\w*|zsh\w*|zprofile|zlogin|profile|login|inputrc|vimrc|gitconfig|netrc|npmrc|pypirc|pgpass|xinitrc"
    r"|xsession|tmux\.conf|wgetrc|curlrc)$|Library/LaunchAgents(/|$)"
)
_HOOKS = r"(^|/)\.git(/|$)|(^|/)\.husky(/|$)"
WRITING: dict[Zone, tuple[Level, str]] = {
    "null": ("safe", ""),
    "workspace": ("normal", ""),
    "temp": ("normal", ""),
    "hooks": ("dangerous", "writes into .git, which git may run unasked; what it does then can't be undone"),
    "whet": ("dangerous", "changes Whet's own home"),
    "startup": ("dangerous", "changes start-up files or keys in your home"),
    "system": ("dangerous", "writes to the system's files"),
    "root": ("dangerous", "writes to a top-level folder"),
    "disk": ("forbidden", "overwrites a disk"),
    "network": ("dangerous", "opens a network connection"),
    "outside": ("dangerous", "writes outside the workspace"),
    "unknown": ("dangerous", "can't tell where it writes"),
}
RUN_BY_OTHERS = "changes what git, an editor, a shell or an agent runs"
"""Why writing to a file is dangerous for which `is_run_by_others` holds."""


def absolute_path(path: str, cwd: str | None) -> str | None:
    """Return `path` made absolute and without `..`, or None if it is relative and the folder is unknown."""
    if not path.startswith("/"):
        if cwd is None:
            return None
        path = os.path.join(cwd, path)
    path = os.path.normpath(path)
    return "/" + path.lstrip("/")


def zone_of(path: str, cwd: str | None, scope: RiskScope) -> Zone:
    """Return the zone of `path`. For a link that leads out of the workspace, it is the zone of the target."""
    full = absolute_path(path, cwd)
    if full is None or "\0" in full:
        return "unknown"
    first = _zone(full, scope)
    if first not in ("workspace", "temp"):
        return first
    # Resolve the path as written: after a link, `..` is the parent of the link's target.
    target = resolve_links(os.path.join(cwd or "/", path))
    second = _zone(target, scope) if target else "unknown"
    return first if second in ("workspace", "temp") else second


def resolve_links(path: str) -> str:
    """Resolve an absolute path, following links. Returns an empty string if no file can have such a name."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return ""


def is_vital(path: str, scope: RiskScope) -> bool:
    """Return whether losing this folder means losing the machine or a person's home."""
    if path == "/" or path == scope.home or scope.home.startswith(path + "/"):
        return True
    return re.fullmatch(_TOP, path) is not None and path not in scope.temp and path != scope.workspace


def within(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it; both absolute."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_whets_own(path: str, scope: RiskScope) -> bool:
    """Return whether an absolute path is in Whet's home. The folder in which a person other than the owner
    works lies there too, and is a workspace like any other for that person alone."""
    if not within(path, scope.whet_home):
        return False
    return not (within(path, scope.workspace) and is_persons_folder(scope.workspace, scope.whet_home))


def is_run_by_others(full: str, scope: RiskScope) -> bool:
    """Return whether git, an editor, a shell or an agent runs what a file of the workspace holds; `full` is
    its absolute path, or leads to it by a link."""
    from whet.sandbox.system_folders import starts_programs  # noqa: PLC0415  only writing needs it

    locations = {
        (full, scope.workspace),
        (resolve_links(full) or full, resolve_links(scope.workspace) or scope.workspace),
    }
    return any(starts_programs(Path(path), Path(top)) for path, top in locations)


def is_plain_device(full: str) -> bool:
    """Return whether it is /dev/null or another device that stores nothing."""
    return re.fullmatch(_NULL, full) is not None


def _special(full: str) -> Zone | None:
    if full.startswith("/dev/"):
        if re.fullmatch(_NULL, full):
            return "null"
        if re.match(_DISK, full):
            return "disk"
        if re.match(_NETWORK, full):
            return "network"
    return None


def _zone(full: str, scope: RiskScope) -> Zone:
    special = _special(full)
    if special is not None:
        return special
    if is_whets_own(full, scope):
        return "whet"
    if _is_startup(full, scope):
        return "startup"
    if within(full, scope.workspace) and full != scope.home:
        inside = full[len(scope.workspace) :]
        if re.search(_HOOKS, inside):
            return "hooks"
        if scope.workspace == scope.home and re.search(_STARTUP, inside.lstrip("/")):
            return "startup"
        return "workspace"
    if any(within(full, folder) for folder in scope.temp):
        return "temp"
    return _zone_outside(full, scope)


def _zone_outside(full: str, scope: RiskScope) -> Zone:
    if is_vital(full, scope):
        return "root"
    if within(full, scope.home):
        return "outside"
    return "system" if re.match(_SYSTEM, full) else "outside"


def _is_startup(full: str, scope: RiskScope) -> bool:
    """Return whether it is a start-up file or a key of the home, even if the home is below /tmp or in the
    workspace.

    A workspace inside the home was chosen by the person, even `~/.config/fish`.
    """
    if not within(full, scope.home):
        return False
    chosen = within(full, scope.workspace) and scope.workspace != scope.home
    if chosen and within(scope.workspace, scope.home):
        return False
    return re.match(_STARTUP, full[len(scope.home.rstrip("/")) + 1 :]) is not None


def stamp_files(folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return the state of each regular file among these names, by real path. It differs after a change."""
    stamps: dict[str, str] = {}
    for name in sorted(names):
        try:
            path = os.path.realpath(os.path.join(folder, os.path.expanduser(name)))
            facts = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(facts.st_mode):
            state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_ctime_ns)
            stamps[path] = str(state)
    return stamps
