"""The folders on this machine that ordinary commands need, and those that no command may reach.

The home is never granted entirely. Its toolchains and caches are granted one by one, so keys, cloud
credentials, keyrings, browsers and histories stay out without being listed. Secret files below a granted
folder are found by their permissions: files that other users can't read are closed to commands too
(`private_files.py`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from whet.sandbox.git_files import find_execution_paths, read_settings
from whet.sandbox.gitlinks import find_worktree_folders, git_folder
from whet.sandbox.policy import SandboxLimits, SandboxPolicy, git_programs, is_below
from whet.sandbox.private_files import find_private_files, holds_secret
from whet.sandbox.protected_names import GIT_RUNS, IN_HOME, PROTECTED
from whet.shell.programs import Phrases

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap")
_SYSTEM_PARTS = ("/var/lib/dpkg", "/var/lib/rpm", "/var/cache/fontconfig", "/var/cache/man", "/var/lib/texmf")
_MAC = ("/System", "/Library", "/private/etc", "/private/var/db", "/Applications/Xcode.app")
_SECRET_SYSTEM = Phrases("""
/etc/shadow, /etc/shadow-, /etc/gshadow, /etc/gshadow-, /etc/sudoers, /etc/sudoers.d, /etc/ssl/private,
/etc/pki/tls/private, /etc/letsencrypt, /etc/wireguard, /etc/openvpn, /etc/ppp,
/etc/NetworkManager/system-connections, /etc/apt/auth.conf, /etc/apt/auth.conf.d, /etc/docker,
/etc/kubernetes, /etc/krb5.keytab, /etc/netrc
""")
_TOOLCHAINS = Phrases("""
.cargo/bin, .cargo/env, .cargo/config.toml, .cargo/registry, .cargo/git, .rustup, .pyenv, .rbenv, .nvm,
.volta, .fnm, .asdf, .sdkman, .deno, .bun/bin, .bun/install/cache, .ghcup, .opam, .dotnet/sdk, .juliaup,
.local/bin, .local/lib, .local/pipx, .local/share/uv/python, .local/share/uv/tools, .local/share/pipx,
.local/share/mise/installs, .local/share/mise/plugins, .local/share/mise/shims, .local/share/pnpm,
.local/share/fnm, go/bin, go/pkg/mod, miniconda3, anaconda3, miniforge3, .m2/repository, .gradle/caches,
.gradle/wrapper, .npm/_cacache, .cache/pip, .cache/uv, .cache/pre-commit, .cache/pypoetry, .cache/yarn,
.gitconfig, .config/git/config, .config/git/ignore, .config/git/attributes, .editorconfig, .inputrc
""")
_MIXED_PARENTS = frozenset({".local", ".cargo", ".config", ".npm"})
_ENVIRONMENT_FOLDERS = Phrases("""
VIRTUAL_ENV, PYENV_ROOT, RUSTUP_HOME, CONDA_PREFIX, NVM_DIR, GOROOT, JAVA_HOME
""")


class PolicyAdditions(msgspec.Struct, frozen=True):
    """Additions to the default policy from a person's settings.

    `folders` are further workspaces. `sealed` are paths that no opening reaches, like Whet's own home.
    """

    write: Sequence[str] = ()
    read: Sequence[str] = ()
    hosts: Sequence[str] = ()
    limits: SandboxLimits = SandboxLimits()
    folders: Sequence[Path] = ()
    sealed: tuple[Path, ...] = ()


def default_policy(
    workspace: Path, whet_home: Path, environment: Mapping[str, str], wishes: PolicyAdditions | None = None
) -> SandboxPolicy:
    """Return the policy that ordinary development in a workspace needs, with the additions of the
    settings."""
    wishes = wishes or PolicyAdditions()
    root = workspace.resolve()
    person = Path(environment.get("HOME") or os.path.expanduser("~")).absolute()
    write, read_paths, protected = repository_paths(root)
    more = [path.resolve() for path in wishes.folders] + _resolve_all(wishes.write)
    write += more
    protected += [name for path in more for name in git_programs(path)]
    toolchains = _toolchain_folders(person, environment)
    read_paths += [*_system_folders(_resolve(person)), *toolchains, *_resolve_all(wishes.read)]
    write, read_paths = _tidy(write), _tidy(read_paths)
    opened = (root, *write, *_resolve_all(wishes.read))
    absent = [
        *_secret_system(),
        *_secret_home(person, root, (*write, *read_paths)),
        *_secret_toolchains(toolchains, person, opened),
    ]
    return SandboxPolicy(
        workspace=root,
        home=_resolve(whet_home),
        write=tuple(path for path in write if path != root),
        read=read_paths,
        absent=tuple(dict.fromkeys(absent)),
        protected=(*PROTECTED, *protected, *_home_names(person, root, environment, absent)),
        aliases=tuple(dict.fromkeys([*_links_on(workspace.absolute()), *_links_on(person)])),
        hosts=tuple(host.lower() for host in wishes.hosts),
        limits=wishes.limits,
        sealed=tuple(map(_resolve, wishes.sealed)),
    )


def _resolve(path: Path | str) -> Path:
    return Path(os.path.realpath(path))


def _resolve_all(paths: Iterable[str]) -> list[Path]:
    return [_resolve(os.path.expanduser(path)) for path in paths if path]


def _tidy(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for path in paths if path != Path("/")))


def _system_folders(home: Path) -> list[Path]:
    names = _MAC if sys.platform == "darwin" else ()
    folders = [_resolve(name) for name in (*_SYSTEM, *_SYSTEM_PARTS, *names) if os.path.isdir(name)]
    return [part for path in folders if path != Path("/") for part in _without_home(path, home)]


def _without_home(folder: Path, home: Path) -> list[Path]:
    """Return a system folder, or its entries around the home if that is below it (`/opt/ann`).

    A service's home may be a program's folder, which belongs to root (`/usr/sbin`): that stays readable.
    """
    if not home.is_relative_to(folder) or not _is_own(home):
        return [folder]
    if home == folder:
        return []
    try:
        entries = [Path(entry.path) for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []
    return [part for path in entries for part in _without_home(path, home)]


def _is_own(folder: Path) -> bool:
    return not hasattr(os, "geteuid") or (folder.exists() and folder.stat().st_uid == os.geteuid())


def _toolchain_folders(person: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the folders on the search path and those in which language toolchains store their files."""
    candidates = [person / name for name in _TOOLCHAINS]
    candidates += [Path(environment[name]) for name in _ENVIRONMENT_FOLDERS if environment.get(name)]
    for entry in environment.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        if not folder.is_absolute():
            continue
        candidates.append(folder)
        above = folder.parent
        is_toolchain = folder.name == "shims" or (folder.name == "bin" and os.path.isdir(above / "lib"))
        if is_toolchain and above != person and above.name not in _MIXED_PARENTS:
            candidates.append(above)
    candidates += [Path(sys.prefix), Path(sys.base_prefix)]
    home = _resolve(person)
    existing = [_resolve(path) for path in candidates if os.path.exists(path)]
    # never the home itself or a folder above it, nor settings with a token in them
    return [
        path
        for path in existing
        if not home.is_relative_to(path)
        and not (path.is_relative_to(home) and path.is_file() and holds_secret(path))
    ]


def _secret_toolchains(toolchains: Sequence[Path], person: Path, opened: Sequence[Path]) -> list[Path]:
    """Return the private files below the toolchain folders of the home, except those that a person opened."""
    home = _resolve(person)
    inside = {path for path in toolchains if is_below(path, home) and path.is_dir()}
    folders = [path for path in inside if inside.isdisjoint(path.parents)]
    return [
        path
        for folder in folders
        for path in find_private_files(folder)
        if not any(path.is_relative_to(granted) or granted.is_relative_to(path) for granted in opened)
    ]


_PROTECTED_NAMES = frozenset(PROTECTED)


def starts_programs(path: Path, workspace: Path) -> bool:
    """Return whether no command may write a path because outside programs run files there."""
    # Each edit asks this: texts, because a Path for each of the names takes a millisecond.
    below = f"{path}/".removeprefix(os.path.join(workspace, ""))
    ends = [at for at, letter in enumerate(below) if letter == "/"]
    if any(below[:end] in _PROTECTED_NAMES for end in ends):
        return True
    names = repository_paths(workspace)[2]
    return any(f"{path}/".startswith(os.path.join(workspace, name, "")) for name in names)


def repository_paths(root: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Return the paths outside a workspace that its repository needs: (write, read, protected).

    The repository of a subfolder is above it. The repository of a second working tree or a submodule is
    elsewhere, and must name that tree in turn: any archive can hold a `.git` file.
    """
    home = _resolve(os.path.expanduser("~"))
    for folder in (root, *root.parents):
        if folder in (home, Path("/")) and folder != root:
            break
        git = folder / ".git"
        if git.is_file():
            own_folder = _resolve(git_folder(str(folder)))
            worktree_folders = [*map(Path, find_worktree_folders(str(folder)))]
            git_folders = worktree_folders or _submodule_folders(folder, own_folder)
            settings = git_folders[0] if git_folders else own_folder
            return (
                git_folders,
                [folder],
                [str(repository_folder / name) for repository_folder in git_folders for name in GIT_RUNS]
                + [str(git), *map(str, find_execution_paths(folder, settings))],
            )
        if git.is_dir():
            real = git.resolve()
            execution_paths = [str(path) for path in find_execution_paths(folder, real)]
            if git.is_symlink():
                execution_paths += [
                    str(git),
                    *(str(real / name) for name in GIT_RUNS if real.is_relative_to(folder)),
                ]
            if folder == root:
                return [], [], execution_paths
            return [git], [folder], [str(git / name) for name in GIT_RUNS] + execution_paths
    return [], [], []


def _submodule_folders(tree: Path, own_folder: Path) -> list[Path]:
    """Return the git folder of a submodule, if its settings name this working tree."""
    trees = [
        own_folder / value
        for name in ("config", "config.worktree")
        for section, key, value in read_settings(own_folder / name)
        if (section, key) == ("core", "worktree")
    ]
    return [own_folder] if trees and _resolve(trees[-1]) == tree else []


def _secret_system() -> list[Path]:
    paths = [Path(name) for name in _SECRET_SYSTEM]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        paths += _unreadable_for_others(Path("/etc"), 3)
    return [path for path in dict.fromkeys(paths) if os.path.lexists(path)]


def _unreadable_for_others(folder: Path, depth: int) -> list[Path]:
    """Find files that only root may read. Commands of root could read them, but have no need to."""
    paths: list[Path] = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return paths
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            continue
        if not mode & stat.S_IROTH:
            paths.append(Path(entry.path))
        elif stat.S_ISDIR(mode) and depth > 1:
            paths += _unreadable_for_others(Path(entry.path), depth - 1)
    return paths


def _secret_home(person: Path, root: Path, granted: Sequence[Path]) -> list[Path]:
    """Return the dot entries of a home that is inside a granted folder, except those granted themselves. Of a
    link, it is the target (`~/dotfiles/ssh`), unless a granted folder is in it."""
    home = _resolve(person)
    if not any(home.is_relative_to(path) for path in (root, *granted)):
        return []
    granted_paths = frozenset(granted) | {root}
    above = frozenset(parent for path in (home, root, *granted) for parent in path.parents) | {home}
    entries = ((path, _resolve(path)) for path in _dot_entries(home))
    return [
        target
        for path, target in entries
        if target not in granted_paths and (target == path or target not in above)
    ]


def _dot_entries(home: Path) -> list[Path]:
    try:
        return [home / name for name in os.listdir(home) if name.startswith(".")]
    except OSError:
        return []


def _home_names(
    person: Path, root: Path, environment: Mapping[str, str], absent: Sequence[Path]
) -> list[str]:
    """Return what no command may write in a workspace that holds the home: files that a login reads, and the
    folders that programs are found in. What lies in an `absent` folder is out of reach already."""
    home = _resolve(person)
    if not is_below(home, root):
        return []
    folders = [_resolve(entry) for entry in environment.get("PATH", "").split(os.pathsep) if entry]
    programs = [path for path in (*folders, home / "bin") if is_below(path, home) and path != home]
    links = [path for path in _dot_entries(home) if path.is_symlink()]
    names = dict.fromkeys((*(home / name for name in IN_HOME), *programs, *links))
    return [str(path) for path in names if not any(is_below(path, hidden) for hidden in absent)]


def _links_on(path: Path) -> list[Path]:
    """Return the symbolic links among a path and its parents, outermost first."""
    return [parent for parent in reversed((path, *path.parents)) if parent.is_symlink()]
