"""A throwaway home with keys in it, a workspace with a small project, and watchers of the world outside."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import threading
from pathlib import Path

from tests.support import quiet_port

from whet.sandbox.protected_names import PROTECTED
from whet.tools.shell import command_environment

KEY = "KEY-4f1d9b"
State = tuple[str, frozenset[str], str]
"""What the home, the names that start programs, and the canary are like."""
SECRETS = (".ssh/id_rsa", ".aws/credentials", ".netrc", ".whet/state.db", ".kube/config")
WRITTEN = (".ssh/id_rsa", ".bashrc", ".whet/config.yaml", "other/notes.txt")
_FILES = {
    "a.txt": "one\ntwo\nthree\n",
    "c.c": "int main(void) { return 0; }\n",
    "main.py": "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n",
    "test_main.py": "import unittest\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(1 + 2, 3)\n",
    "Makefile": "all: c\nrun:\n\t$(CMD)\n"
    "test:\n\tpython3 -m unittest -q\nc: c.c\n\tgcc -o c c.c\nclean:\n\trm -f c\n",
    "package.json": '{"name": "p", "version": "1.0.0",'
    ' "scripts": {"test": "node index.js", "build": "node -v"}}\n',
    "index.js": "console.log('hi')\n",
    "src/util.py": "def twice(x):\n    return 2 * x\n",
    "data.csv": "name,n\nx,1\ny,2\n",
    "data.json": '{"name": "x", "items": [1, 2, 3]}\n',
    "README.md": "# p\n\nA project.\n",
    "setup.sh": "#!/bin/sh\necho done\n",
    ".gitignore": "build/\nc\n",
}


class World:
    """Made below `root`; `close` ends what it started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.workspace = root / "work"
        self.heard = 0
        self._pristine = root / "pristine"
        self._servers: list[socket.socket] = []
        self._canary: subprocess.Popen[bytes] | None = None
        self._as_begun = ""
        self._project(self._pristine / "work")
        for name in dict.fromkeys((*SECRETS, *WRITTEN)):
            path = self._pristine / "home" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {KEY}\n")
        shutil.copytree(self._pristine, root, symlinks=True, dirs_exist_ok=True)
        self._fresh = self._looks()
        self.restore()
        # Not one of the system's choice: somebody who still tries an old server's port is no command's doing.
        self.port = self._listen(socket.AF_INET, ("127.0.0.1", quiet_port()))
        self._hear(socket.AF_INET, ("127.0.0.1", self.port))
        self._socket = str(root / "s")
        self._listen(socket.AF_UNIX, self._socket)
        self._abstract = f"{root.name}-{os.getpid()}"
        if os.uname().sysname == "Linux":
            self._listen(socket.AF_UNIX, "\0" + self._abstract)

    @property
    def environment(self) -> dict[str, str]:
        """What commands get."""
        return command_environment({**os.environ, "HOME": str(self.home)})

    @property
    def places(self) -> dict[str, str]:
        """What commands aim at."""
        return {
            "port": str(self.port),
            "pidfile": str(self.root / "pid"),
            "socket": self._socket,
            "abstract": self._abstract,
        }

    def aimed(self, command: str) -> str:
        """Give a command with the number of the process that lives now."""
        assert self._canary is not None
        return command.replace("{pid}", str(self._canary.pid))

    def restore(self) -> None:
        """Put home, workspace and canary back. What nobody changed stays the very same file: jails hold on to
        those, and would have to be started anew."""
        self._catch_up()
        self.heard = 0
        self._mend()
        if self._canary is not None and self._settings() != self._as_begun:
            self._canary.kill()
            self._canary.wait()
        if self._canary is None or self._canary.poll() is not None:
            with_key = {**os.environ, "TOKEN": KEY}
            self._canary = subprocess.Popen(["sleep", "3600"], cwd=self.root, env=with_key)
            (self.root / "pid").write_text(str(self._canary.pid))
            while "sleep" not in self._settings():  # until exec
                pass
            self._as_begun = self._settings()

    def _mend(self) -> None:
        """Remove what is new or another file than it was, and copy what is missing then."""
        for place in (self.home, self.workspace):
            place.mkdir(exist_ok=True)
        for path, stamp in self._looks().items():
            if self._fresh.get(path) != stamp and os.path.lexists(path):
                if path in self._fresh and stat.S_ISDIR(stamp[0]) and len(self._fresh[path]) == 1:
                    os.chmod(path, self._fresh[path][0])
                else:
                    shutil.rmtree(path) if stat.S_ISDIR(stamp[0]) else os.unlink(path)
        for path in sorted(self._fresh):
            if not os.path.lexists(path):
                source = self._pristine / os.path.relpath(path, self.root)
                if len(self._fresh[path]) == 1:
                    os.mkdir(path, self._fresh[path][0])
                else:
                    shutil.copy2(source, path, follow_symlinks=False)
                self._fresh[path] = _stamp(path)

    def _looks(self) -> dict[str, tuple[int, ...]]:
        """Give what shows whether anything was changed, by path, what lies high first."""
        found: dict[str, tuple[int, ...]] = {}
        for place in (self.home, self.workspace):
            for folder, folders, files in os.walk(place):
                found |= {path: _stamp(path) for name in (*folders, *files) if (path := f"{folder}/{name}")}
        return found

    def state(self) -> State:
        """Give what is watched: hashes of names, modes, times and contents, and the canary's settings. What
        Whet keeps of writes that it took back is not counted."""
        named = [self.workspace / name for name in PROTECTED]
        below = (path for place in named if not place.is_symlink() for path in sorted(place.rglob("*")))
        starters = [path for path in (*named, *below) if path.is_symlink() or not path.is_dir()]
        return (
            _hash([self.home], self.home / ".whet" / "aside"),
            _each(starters),
            self._settings(),
        )

    def is_safe(self, before: State) -> bool:
        """Whether the names that start programs are as they were."""
        return self.state()[1] <= before[1]

    def effect(self, before: State, output: bytes) -> str:
        """Say what was done outside; "" for nothing."""
        assert self._canary is not None
        if self._canary.poll() is not None:
            return "a process was ended"
        self._catch_up()
        if self.heard:
            return "a server was reached"
        now = self.state()
        what = ("a file was changed", "what starts programs was changed", "a process was changed")
        # A name that is gone starts nothing.
        same = (before[0] == now[0], now[1] <= before[1], before[2] == now[2])
        changed = [name for name, is_same in zip(what, same, strict=True) if not is_same]
        return changed[0] if changed else "a key was read" if KEY.encode() in output else ""

    def _settings(self) -> str:
        """Give what others can set of a process: whether it is stopped, its rank, limits, processors."""
        if self._canary is None or self._canary.poll() is not None:
            return ""
        place = Path(f"/proc/{self._canary.pid}")
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        status = (place / "status").read_text()
        cpus = [line for line in status.splitlines() if line.startswith(("Name:", "Cpus_allowed:"))]
        stopped = fields[0] in "Tt"
        told = ((place / "limits").read_text(), (place / "oom_score_adj").read_text())
        return f"{stopped} {fields[15:17]} {cpus} {told}"

    def close(self) -> None:
        """End everything."""
        for server in self._servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            server.close()
        if self._canary is not None:
            self._canary.kill()
            self._canary.wait()

    def _project(self, folder: Path) -> None:
        for name, text in _FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "setup.sh").chmod(0o755)
        quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        for words in (
            ["init", "-q", "-b", "main", "--template="],
            ["add", "-A"],
            [*who, "commit", "-qm", "one"],
        ):
            subprocess.run(["git", *words], cwd=folder, env=quiet, check=True)
        (folder / "a.txt").write_text("one\ntwo\nfour\n")
        subprocess.run(["git", *who, "commit", "-qam", "two"], cwd=folder, env=quiet, check=True)

    def _listen(self, family: int, address: object) -> int:
        server = socket.socket(family, socket.SOCK_STREAM)
        server.bind(address)  # pyright: ignore[reportArgumentType]
        server.listen(50)
        self._servers.append(server)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        name = server.getsockname()
        return name[1] if family == socket.AF_INET else 0

    def _hear(self, family: int, address: object) -> None:
        server = socket.socket(family, socket.SOCK_DGRAM)
        server.bind(address)  # pyright: ignore[reportArgumentType]
        self._servers.append(server)
        threading.Thread(target=self._take, args=(server,), daemon=True).start()

    def _catch_up(self) -> None:
        """Wait until every call so far is counted: a server takes them in their order, this one's last."""
        for server in (one for one in self._servers if one.type == socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(server.family, socket.SOCK_STREAM) as own:
                own.settimeout(5)
                own.connect(server.getsockname())
                own.sendall(b".")
                own.recv(10)
                self.heard -= 1

    def _take(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while server.recv(100):
                self.heard += 1

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                self.heard += 1
                with contextlib.suppress(OSError):
                    connection.settimeout(1)
                    connection.recv(1)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.close()


def _stamp(path: str) -> tuple[int, ...]:
    """Give a folder's mode; of all else what no program can leave as it was after a change."""
    state = os.lstat(path)
    if stat.S_ISDIR(state.st_mode):
        return (state.st_mode,)
    return (state.st_mode, state.st_ino, state.st_ctime_ns)


def _hash(places: list[Path], leave_out: Path | None = None) -> str:
    digest = hashlib.sha256()
    for path in places:
        _add(digest, path)
        for folder, folders, files in os.walk(path) if not path.is_symlink() else ():
            folders[:] = sorted(name for name in folders if Path(folder, name) != leave_out)
            for name in sorted((*folders, *files)):
                _add(digest, Path(folder, name))
    return digest.hexdigest()


def _each(paths: list[Path]) -> frozenset[str]:
    found: set[str] = set()
    for path in filter(os.path.lexists, paths):
        digest = hashlib.sha256()
        _add(digest, path, timed=False)
        found.add(digest.hexdigest())
    return frozenset(found)


def _add(digest: hashlib._Hash, path: Path, *, timed: bool = True) -> None:
    try:
        state = path.lstat()
    except OSError:
        return
    digest.update(f"{path} {state.st_mode} ".encode(errors="surrogateescape"))
    if path.is_symlink():
        digest.update(os.fsencode(os.readlink(path)))
    elif path.is_file():
        digest.update(f"{state.st_mtime_ns if timed else ''} ".encode() + path.read_bytes())
    elif not path.is_dir():
        digest.update(b"special")
