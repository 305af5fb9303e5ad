"""Where everything of one home lives, and how its small text files are read and replaced safely.

`WHET_HOME` (default ~/.whet); a profile is its own home below it. Reading turns every way a file can be wrong
into a ConfigError; replacing is atomic and durable (a temporary file, fsync, rename), and goes through a
symbolic link to what it points at. What the files hold is not known here.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whet.contract.errors import ConfigError, StoreUnwritable

LARGEST_BYTES = 256 * 1024


class Home(msgspec.Struct, frozen=True):
    """The folder of one profile and the files in it."""

    root: Path

    @property
    def whole(self) -> Path:
        """The folder that holds every profile: the root itself, or that of the home which a profile is in."""
        above = self.root.parent
        return above.parent if above.name == "profiles" else self.root

    @property
    def no_sandbox(self) -> Path:
        """There where the last look found no engine that confines commands (`sandbox/known.py`)."""
        return self.whole / "no-sandbox.txt"

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
        """What workspaces were before and after steps, a folder for each."""
        return self.root / "rewind"

    @property
    def gateway(self) -> Path:
        """Chat platforms, and who is who on them."""
        return self.root / "gateway.toml"

    @property
    def servers(self) -> Path:
        """The private folders of MCP servers. They are beside the home, of which a server sees nothing."""
        return self.whole.with_name(f"{self.whole.name}-servers") / self.root.relative_to(self.whole)

    @property
    def logs(self) -> Path:
        """The log folder."""
        return self.root / "logs"

    @property
    def history(self) -> Path:
        """What was typed in the chat, for the arrow keys."""
        return self.root / "history"

    def ensure(self) -> None:
        """Make the home, readable by its owner only. Raises StoreUnwritable."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnwritable(
                f"can't make the home folder {self.root}: {error.strerror}",
                hint="set WHET_HOME to a folder that you can write",
            ) from error


def find_home(profile: str = "") -> Home:
    """Give the home from WHET_HOME and the profile's name; nothing is made."""
    root = Path(os.environ.get("WHET_HOME") or "~/.whet").expanduser().absolute()
    if not profile:
        return Home(root)
    if not profile.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"profile name {profile!r} is not usable", hint="letters, digits, - and _ only")
    return Home(root / "profiles" / profile)


def read_small(path: Path) -> str | None:
    """Give the text of `path`, None where there is no file. Raises ConfigError for anything else."""
    raw = read_whole(path, LARGEST_BYTES)
    return None if raw is None else as_text(raw, path)


def read_whole(path: Path, limit_bytes: int, *, through_links: bool = True) -> bytes | None:
    """Give the bytes of `path`, None where there is no file. Raises ConfigError for anything else, what
    is larger than the limit, and a link where none is followed."""
    # Not a plain open: a named pipe in the file's place would hang it for ever.
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
        what = "a folder" if stat.S_ISDIR(facts.st_mode) else "not a plain file"
        raise ConfigError(f"{path} is {what}", hint=f"move {path} away")
    if (size := max(facts.st_size, len(raw))) > limit_bytes:
        raise ConfigError(
            f"{path} has {size:,} bytes, more than the {limit_bytes:,} that are read",
            hint="make it shorter, or move it away",
        )
    return raw


def as_text(raw: bytes, path: Path) -> str:
    """Decode what `path` holds. Raises ConfigError with the line."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line} is not UTF-8 text", hint="save the file as UTF-8") from error


def replace(path: Path, text: str, *, mode: int) -> None:
    """Put `text` in the file's place with `mode`; on return it is on disk, and never half of it.

    Raises ConfigError where the folder can't be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            fill(temporary, text.encode(), mode)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
    except OSError as error:
        raise ConfigError(
            f"can't write {path}: {error.strerror}", hint="check the folder's owner and space"
        ) from error


def fill(path: Path, content: bytes, mode: int) -> None:
    """Make a new file with `mode` that holds this; it is on the disk on return. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keep other processes of ours out of a folder's files meanwhile; a person is not kept out. The folder is
    made where there is none. Raises StoreUnwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Put a folder's names on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def mode_of(path: Path) -> int | None:
    """Give the permission bits of `path`, None where it is not there."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
