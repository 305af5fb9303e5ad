"""What tests of rewinding share: a workspace, a digest of a whole tree, scripts that destroy it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import stat
import subprocess
from pathlib import Path

from whet.clock import SystemClock
from whet.rewind.database import Record
from whet.rewind.ownership import EditedPaths
from whet.rewind.recorder import Workspace
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step
from whet.rewind.taking_back import RewindResult, Scope, take_back


def open_workspace(folder: Path, limits: RecordLimits | None = None) -> Workspace:
    (folder / "work").mkdir(exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    return Workspace(folder / "work", folder / "home", limits or RecordLimits(), SystemClock())


def step(workspace: Workspace, command: str, *, session: str = "s", number: int = 1) -> int:
    """Run a command as a recorded step of turn 1, and return the record's number."""
    record, _ = begin_step(workspace, session, 1, number)
    subprocess.run(["bash", "-c", command], cwd=workspace.root, check=True)
    end_step(workspace, record)
    return record


def back(
    workspace: Workspace,
    record: int,
    session: str = "s",
    *,
    force: bool = False,
    edited: EditedPaths | None = None,
) -> RewindResult:
    """Take back a session's records from this one on."""
    new = Record(0, session, 1, 1, "rewind", 0, 0, 0)
    return take_back(workspace, record, new, Scope({session}, force=force, files=(), edited=edited or {}))


def fingerprint(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Give everything that a rewind promises of a tree: kinds, modes, contents, targets of links.

    What is locked for who runs this is told by its mode alone.
    """
    states: dict[bytes, tuple[object, ...]] = {}
    stack = [os.fsencode(root)]
    while stack:
        with contextlib.suppress(PermissionError):
            for item in os.scandir(stack.pop()):
                path = os.path.relpath(item.path, os.fsencode(root))
                seen = item.stat(follow_symlinks=False)
                mode = stat.S_IMODE(seen.st_mode)
                if item.is_symlink():
                    states[path] = ("link", os.readlink(item.path))
                elif item.is_dir(follow_symlinks=False):
                    states[path] = ("folder", mode)
                    stack.append(item.path)
                else:
                    states[path] = ("file", mode, _digest(item.path))
    return states


def _digest(path: bytes) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except PermissionError:
        return "locked"


def fill(root: Path, rng: random.Random) -> None:
    """Make a tree with everything that is awkward in it."""
    for index in range(rng.randrange(8, 25)):
        folder = root / "/".join(
            rng.choice(["src", "lib", "a b", "ü", "deep"]) for _ in range(rng.randrange(3))
        )
        folder.mkdir(parents=True, exist_ok=True)
        name = rng.choice(["f%d.txt", "n\n%d", "ü %d.py", "-x%d", "$(x)%d", "q'%d\"", ".h%d"]) % index
        data = rng.choice([b"", b"line\n" * rng.randrange(1, 400), rng.randbytes(rng.randrange(5_000))])
        (folder / name).write_bytes(data)
        (folder / name).chmod(rng.choice([0o644, 0o600, 0o755, 0o444, 0o4755]))
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe-raw")).write_bytes(b"raw")
    (root / "empty" / "more").mkdir(parents=True, exist_ok=True)
    (root / "link").symlink_to("src/nowhere")
    (root / "out").symlink_to("/etc/hostname")
    (root / "folder-link").symlink_to("empty")
    deep = root / "/".join(["d" * 40] * 12)
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("bottom")
    os.link(deep / "bottom", root / "hard")


ACTS = (
    "find . -mindepth 1 -maxdepth 1 -print0 | shuf -z -n 1 --random-source=<(yes {n}) | xargs -0 rm -rf --",
    "rm -rf src lib",
    "rm -rf -- * .h* 2>/dev/null",
    "find . -type f -print0 | head -z -n {k} | xargs -0 sed -i 's/line/LINE {n}/'",
    "find . -type f -print0 | tail -z -n {k} | xargs -0 truncate -s {n}",
    "find . -type f -print0 | head -z -n {k} | xargs -0 chmod 000",
    "chmod -R a-w . ; chmod u+w .",
    "find . -depth -type d -name d* -exec chmod 500 {{}} +",
    "mv src moved{n}; mv 'a b' src",
    "mv deep x{n} 2>/dev/null; ln -s x{n} deep",
    "head -c 100000 /dev/urandom > blob{n}; head -c 50 /dev/urandom > $'new\\nline{n}'",
    "rm -rf empty; echo now-a-file > empty",
    "rm -f link out; mkdir link; echo x > link/inside; ln -s / out",
    "ln -sfn ../.. folder-link; ln -f hard hard{n}; echo more >> hard",
    "mkdir -p p{n}/q/r; touch p{n}/q/r/s; chmod 0 p{n}/q",
    "for i in $(seq 30); do mkdir deeper$i && cd deeper$i; done; echo bottom > file",
    "printf 'a\\0b' > nul{n}; touch -d @0 nul{n}; cp -a nul{n} $'\\xff{n}'",
    "git init -q .; git add -A; git -c user.name=x -c user.email=x@x commit -qm x; rm -rf .git/objects/??",
)


def script(rng: random.Random) -> str:
    """Give a script that destroys much of a tree, in bash."""
    acts = [
        rng.choice(ACTS).format(n=rng.randrange(1000), k=rng.randrange(1, 9))
        for _ in range(rng.randrange(1, 6))
    ]
    return "\n".join(f"( {act} ) || true" for act in acts)


def unlock(root: Path) -> None:
    """Make a tree removable again."""
    subprocess.run(["chmod", "-R", "u+rwX", str(root)], capture_output=True, check=False)
