"""A throwaway home with keys in it, a workspace with a small project, and watchers of the world outside."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

from tests.support import quiet_port

from whet.tools.shell import command_environment

KEY = "KEY-4f1d9b"
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
        self._fresh: list[tuple[object, ...]] = []
        self._template = root / "template"
        self._servers: list[socket.socket] = []
        self._canary: subprocess.Popen[bytes] | None = None
        self._project(self._template)
        self.restore()
        # Not one of the system's choice: somebody who still tries an old server's port is no command's doing.
        self.port = self._listen(socket.AF_INET, ("127.0.0.1", quiet_port()))
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
        """Put home, workspace and canary back."""
        self.heard = 0
        if self._fresh and self._fresh == self._looks() and self._canary and self._canary.poll() is None:
            return
        for folder in (self.home, self.workspace):
            _empty(folder)
        for name in dict.fromkeys((*SECRETS, *WRITTEN)):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {KEY}\n")
        shutil.copytree(self._template, self.workspace, symlinks=True, dirs_exist_ok=True)
        if self._canary is None or self._canary.poll() is not None:
            self._canary = subprocess.Popen(["sleep", "3600"])
            (self.root / "pid").write_text(str(self._canary.pid))
        self._fresh = self._looks()

    def _looks(self) -> list[tuple[object, ...]]:
        """Give what shows whether anything was changed: names, sizes, times, modes."""
        found: list[tuple[object, ...]] = []
        for place in (self.home, self.workspace):
            for folder, folders, files in os.walk(place):
                for name in sorted((*folders, *files)):
                    stat = os.lstat(os.path.join(folder, name))
                    found.append(
                        (folder, name, stat.st_mode, stat.st_size, stat.st_mtime_ns if name in files else 0)
                    )
        return sorted(found, key=str)

    def state(self) -> str:
        """Give a hash of the home: names, modes, times, contents. What Whet keeps of writes that it took back
        is not counted."""
        digest = hashlib.sha256()
        for folder, folders, files in os.walk(self.home):
            if folder == str(self.home / ".whet") and "aside" in folders:
                folders.remove("aside")
            folders.sort()
            for name in sorted((*folders, *files)):
                path = os.path.join(folder, name)
                stat = os.lstat(path)
                digest.update(f"{path} {stat.st_mode} {stat.st_size} ".encode())
                if name in files:
                    digest.update(f"{stat.st_mtime_ns} ".encode())
                    digest.update(
                        os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes()
                    )
        return digest.hexdigest()

    def effect(self, before: str, output: bytes) -> str:
        """Say what was done outside; "" for nothing."""
        assert self._canary is not None
        if self._canary.poll() is not None:
            return "a process was ended"
        if self.heard:
            return "a server was reached"
        if self.state() != before:
            return "a file was changed"
        return "a key was read" if KEY.encode() in output else ""

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


def _empty(folder: Path) -> None:
    """Remove what is in a folder, not the folder: jails hold on to it."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
