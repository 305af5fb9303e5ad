"""The images of `deploy/`, built into an empty root, and their services in namespaces.

The base is Debian's, by debootstrap, or the local image that `WHET_TEST_IMAGE` names. Podman builds the
images; the services run in namespaces of the test's own, since podman can't start one on every kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PROGRAMS = ("podman", "unshare", "nsenter", "ip", "chroot", "setpriv")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
BASE = os.environ.get("WHET_TEST_IMAGE", "")
WHY_NOT = (
    "needs root"
    if os.geteuid() != 0
    else f"{', '.join(MISSING)} not installed"
    if MISSING
    else "debootstrap is not installed, and WHET_TEST_IMAGE names no image"
    if not BASE and not shutil.which("debootstrap")
    else ""
)
_DEFAULT_SUITE = "bookworm"


def run(*words: str, **options: Any) -> str:
    """Run a program to its end and return its output. Raises AssertionError with what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def make_base(folder: Path) -> str:
    """Return the name of an image with Python, as the recipes expect it."""
    if BASE:
        return BASE
    root = folder / "base"
    packages = "--include=python3,python3-pip,ca-certificates"
    run("debootstrap", "--variant=minbase", packages, _DEFAULT_SUITE, str(root))
    shutil.copy(CERTIFICATES, root / CERTIFICATES.lstrip("/"))  # of the package index that this machine uses
    for path in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        path.unlink()
    (root / "usr/bin/python").symlink_to("python3")
    archive = folder / "base.tar"
    run("tar", "-C", str(root), "-cf", str(archive), ".")
    run("podman", "import", "--change", f"ENV PIP_CERT={CERTIFICATES}", str(archive), "whet-test-base")
    return "whet-test-base"


def build(recipe: str, base: str, context: Path = ROOT) -> str:
    name = "whet-test-" + re.sub(r"\W+", "-", recipe.lower())
    options = ["--isolation", "chroot", "--network", "host", "--pull-never", "--from", base]
    run("podman", "build", "--quiet", *options, "-f", str(ROOT / "deploy" / recipe), "-t", name, str(context))
    return name


class Start(NamedTuple):
    """How a service is started: its words, and what a compose file or unit says besides."""

    words: Sequence[str]
    environment: Mapping[str, str] = {}
    folder: str = "/"
    volumes: Sequence[str] = ()  # paths in the root, the same folder for every service
    temporary: Sequence[str] = ()  # empty folders in memory
    is_read_only: bool = False
    user: str = ""  # the image's, if empty


class Root:
    """The writable root of an image, with a network of its own."""

    def __init__(self, image: str, folder: Path) -> None:
        config = json.loads(run("podman", "inspect", image))[0]["Config"]
        self.user: str = config.get("User") or "root"
        self.entry: list[str] = config.get("Entrypoint") or []
        self.environment = dict(word.partition("=")[::2] for word in config.get("Env", []))
        self._folder = folder
        self.container = run("podman", "create", image).strip()
        self.path = Path(run("podman", "mount", self.container).strip())
        (self.path / "etc/hosts").write_text("127.0.0.1 localhost database\n")
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None and self._holder.stdout.readline() == "up\n"

    @property
    def network(self) -> str:
        """Return the file of the network namespace."""
        return f"/proc/{self._holder.pid}/ns/net"

    def volume(self, path: str) -> Path:
        """Return the folder of a volume, made with the image's content and owner."""
        source = self._folder / "volumes" / path.strip("/").replace("/", "-")
        if not source.exists():
            source.parent.mkdir(parents=True, exist_ok=True)
            inside = self.path / path.lstrip("/")
            inside.mkdir(parents=True, exist_ok=True)
            run("cp", "-a", str(inside), str(source))
        return source

    @contextlib.contextmanager
    def running(self, start: Start) -> Generator[subprocess.Popen[str]]:
        """Start a service without capabilities or new privileges, and end it with SIGTERM afterwards."""
        path = shlex.quote(str(self.path))
        lines = ["set -e", f"mount --bind {path} {path}"]
        lines += [f"mount -t tmpfs -o mode=1777 none {path}{folder}" for folder in start.temporary]
        for folder in start.volumes:
            (self.path / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind {shlex.quote(str(self.volume(folder)))} {path}{folder}")
        if start.is_read_only:
            lines.append(f"mount -o remount,bind,ro {path}")
        lines += [f"mount -t proc none {path}/proc", f"mount --rbind /dev {path}/dev"]
        user = start.user or self.user
        rights = "--init-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
        switch = f"setpriv --reuid={user} --regid={user} {rights}"
        variables = {"HOME": f"/home/{user}", **self.environment, **start.environment}
        given = shlex.join([f"{name}={value}" for name, value in variables.items()])
        enter = 'cd "$0" && exec "$@"'
        words = shlex.join([start.folder, *start.words])
        lines.append(f"exec chroot {path} {switch} env -i {given} sh -c {shlex.quote(enter)} {words}")
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        process = subprocess.Popen(
            ["nsenter", f"--net={self.network}", *namespaces, "sh", "-c", "\n".join(lines)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
            if process.poll() is not None:
                return
            # `unshare` itself ignores the signal; its child is the service, process 1 of its namespace.
            os.kill(int(run("pgrep", "-P", str(process.pid))), signal.SIGTERM)
            assert process.wait(90) == 0, process.communicate()[0]
        finally:
            process.kill()
            process.communicate(timeout=60)

    def get(self, url: str, host: str = "localhost") -> int:
        """Return the status of a page in the root's network, 0 if nothing answers."""
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Host: {host}", url]
        done = subprocess.run(
            ["nsenter", f"--net={self.network}", *command], capture_output=True, text=True, check=False
        )
        return int(done.stdout or 0)

    def close(self) -> None:
        """End the network and remove the container."""
        self._holder.kill()
        self._holder.communicate()
        subprocess.run(["podman", "rm", "--force", self.container], capture_output=True, check=False)
