"""Find the files of a home and the folders of a project, and read and replace small text files safely.

The home is `WHET_HOME`, by default ~/.whet. A profile is a home of its own below it. Every fault of a file
that is read becomes a ConfigError. Replacing is durable and, if the file can be renamed, atomic. It
follows a symbolic link to its target. This module does not know the files' contents.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whet.beneath import open_folder, put_in_place
from whet.contract.errors import ConfigError, StoreUnwritable

MAX_SMALL_BYTES = 256 * 1024


def choose_workspace(stored: str, fallback: Path) -> tuple[Path, Sequence[str]]:
    """Return the folder that an opened session works in, and lines for its person.

    That is `fallback` if the session has no `stored` folder, or, with a line, if the folder no longer exists.
    """
    if not stored or Path(stored).is_dir():
        return Path(stored) if stored else fallback, ()
    return fallback, (f"the session's folder {stored} no longer exists; it works in {fallback} now",)


class Home(msgspec.Struct, frozen=True):
    """The folder of one profile and the files in it."""

    root: Path

    @property
    def main_root(self) -> Path:
        """The home without a profile: for a profile, the home that it is in, otherwise `root`."""
        above = self.root.parent
        return above.parent if above.name == "profiles" else self.root

    @property
    def no_sandbox(self) -> Path:
        """A file that exists if the last check found no usable sandbox (`sandbox/engine_cache.py`)."""
        return self.main_root / "no-sandbox.txt"

    @property
    def config(self) -> Path:
        """Settings."""
        return self.root / "config.yaml"

    @property
    def env(self) -> Path:
        """Secrets, mode 0600."""
        return self.root / ".env"

    @property
    def database(self) -> Path:
        """Sessions, messages, jobs."""
        return self.root / "state.db"

    @property
    def memories(self) -> Path:
        """MEMORY.md and USER.md."""
        return self.root / "memories"

    @property
    def skills(self) -> Path:
        """Skills, a folder each."""
        return self.root / "skills"

    @property
    def people(self) -> Path:
        """Memory and skills of people other than the owner, a folder each."""
        return self.root / "people"

    @property
    def warm(self) -> Path:
        """Templates of warm sessions."""
        return self.root / "warm"

    @property
    def rewind(self) -> Path:
        """The contents of workspaces before and after steps, one folder for each."""
        return self.root / "rewind"

    @property
    def gateway(self) -> Path:
        """The settings of chat platforms and their people."""
        return self.root / "gateway.toml"

    @property
    def servers(self) -> Path:
        """The private folders of MCP servers. They are beside the home, of which a server sees nothing."""
        return self.main_root.with_name(f"{self.main_root.name}-servers") / self.root.relative_to(
            self.main_root
        )

    @property
    def logs(self) -> Path:
        """The log folder."""
        return self.root / "logs"

    @property
    def history(self) -> Path:
        """The history of the chat's input line."""
        return self.root / "history"

    def ensure(self) -> None:
        """Create the home, readable by its owner only. Raises StoreUnwritable."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnwritable(
                f"can't make the home folder {self.root}: {error.strerror}",
                hint="set WHET_HOME to a folder that you can write",
            ) from error


def find_home(profile: str = "") -> Home:
    """Return the home for WHET_HOME and a profile's name. Creates nothing. Raises ConfigError."""
    try:
        root = Path(os.environ.get("WHET_HOME") or "~/.whet").expanduser().absolute()
    except RuntimeError as error:  # no HOME, and no entry for this user in the password file
        raise ConfigError(
            "this user has no home folder", hint="set HOME, or WHET_HOME to a folder that you can write"
        ) from error
    if not profile:
        return Home(root)
    if not profile.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"profile name {profile!r} is not usable", hint="letters, digits, - and _ only")
    return Home(root / "profiles" / profile)


def list_project_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the folders from the root of the workspace's repository down to the workspace.

    Returns the workspace alone if it is in no repository of this user. It may not exist yet.
    """
    folder = workspace.absolute()
    for number, above in enumerate((folder, *folder.parents)):
        try:
            owner = (above / ".git").lstat().st_uid
        except OSError:
            continue
        # A repository of another user, such as one in /tmp, has no authority over this folder.
        is_own = owner == os.getuid() or (folder.exists() and owner == folder.stat().st_uid)
        return (*reversed(folder.parents[:number]), folder) if is_own else (folder,)
    return (folder,)


def read_small(path: Path) -> str | None:
    """Return the text of `path`, or None if it does not exist. Raises ConfigError if it can't be read."""
    raw = read_file_bytes(path, MAX_SMALL_BYTES)
    return None if raw is None else decode_text(raw, path)


def read_file_bytes(path: Path, limit_bytes: int, *, through_links: bool = True) -> bytes | None:
    """Return the bytes of `path`, or None if it does not exist.

    Raises ConfigError if it is not a file, is larger than the limit or can't be read, or if it is a link and
    `through_links` is False.
    """
    # Without O_NONBLOCK, a named pipe of that name would block forever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if through_links else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
        try:
            facts, raw = os.fstat(handle), b""
            if stat.S_ISREG(facts.st_mode):
                with open(handle, "rb", closefd=False) as file:
                    raw = file.read(limit_bytes + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        if path.is_symlink():
            target = os.readlink(path)
            hint = f"mount or restore {target}, or remove the link"
            raise ConfigError(f"{path} is a link to {target}, which is not there", hint=hint) from None
        return None
    except NotADirectoryError:
        raise ConfigError(f"{path.parent} is not a folder", hint=f"move {path.parent} away") from None
    except OSError as error:
        if not through_links and path.is_symlink():
            raise ConfigError(f"{path} is a symbolic link", hint="put a plain file in its place") from None
        raise ConfigError(
            f"can't read {path}: {error.strerror}", hint=f"check the owner and mode of {path}"
        ) from error
    if not stat.S_ISREG(facts.st_mode):
        problem = "a folder" if stat.S_ISDIR(facts.st_mode) else "not a plain file"
        raise ConfigError(f"{path} is {problem}", hint=f"move {path} away")
    if (size := max(facts.st_size, len(raw))) > limit_bytes:
        raise ConfigError(
            f"{path} has {size:,} bytes, more than the {limit_bytes:,} that are read",
            hint="make it shorter, or move it away",
        )
    return raw


def decode_text(raw: bytes, path: Path) -> str:
    """Decode the bytes of `path`. Raises ConfigError with the line."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line} is not UTF-8 text", hint="save the file as UTF-8") from error


def replace_file(path: Path, text: str, *, mode: int) -> None:
    """Replace the file's content by `text` with `mode`. On return it is on disk.

    Readers see the old or the new content, never a part of it. Only a mount point, or a file that would lose
    its owner or extended attributes, is written in place. Raises ConfigError if the folder can't be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            write_new_file(temporary, text.encode(), mode)
            with open_folder(target.parent, ()) as folder:
                put_in_place(folder, temporary.name, target.name, mode=mode)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
    except OSError as error:
        raise ConfigError(
            f"can't write {path}: {error.strerror}", hint="check the folder's owner and space"
        ) from error


def write_new_file(path: Path, content: bytes, mode: int) -> None:
    """Create a new file with `mode` and this content, durable on return. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Hold an exclusive lock on a folder against Whet's other processes. Not reentrant.

    Creates the folder if needed. If no file can be made in it, the folder itself is locked. Raises
    StoreUnwritable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreUnwritable(
            f"can't write in {folder}: {error.strerror}", hint="check the folder's owner and free space"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_mode(path: Path) -> int | None:
    """Return the permission bits of `path`, or None if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def is_link_upward(path: str | Path) -> bool:
    """Return whether a path is a link to a folder that contains the path."""
    if not os.path.islink(path):
        return False
    above, target = os.path.realpath(os.path.dirname(path)), os.path.realpath(path)
    return f"{above}/".startswith(f"{target.rstrip('/')}/")
