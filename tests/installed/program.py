"""Whet as a user installs it: the built wheel without extras, in an environment with nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import SYSTEMS_CERTIFICATES

ROOT = Path(__file__).parents[2]
_INDEXES = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_", "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR")
_START_S = 60.0


class Installed(NamedTuple):
    """The environment's folder, and a home and a working folder that were empty."""

    environment: Path
    home: Path
    work: Path

    @property
    def variables(self) -> dict[str, str]:
        """Return what a person's shell would have, with the package indexes of this machine."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(_INDEXES)}
        kept |= {"SSL_CERT_FILE": SYSTEMS_CERTIFICATES} if SYSTEMS_CERTIFICATES else {}
        return {**kept, "PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}

    def command(self, words: Sequence[str]) -> list[str]:
        return [str(self.environment / "bin" / "whet"), *words]

    def run(
        self, *words: str, timeout_s: float = 140.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `whet` to its end, with further variables."""
        return subprocess.run(
            self.command(words),
            cwd=self.work,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @contextmanager
    def serving(self, *words: str, ready: str) -> Generator[re.Match[str]]:
        """Run `whet` until its output has the pattern `ready`, and end it with SIGTERM afterwards.

        Raises AssertionError with what it printed if it ends first.
        """
        process = subprocess.Popen(
            self.command(words),
            cwd=self.work,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = ""
        try:
            assert process.stdout is not None
            while (match := re.search(ready, printed)) is None:
                line = process.stdout.readline()
                assert line, f"whet {' '.join(words)} ended: {printed}"
                printed += line
            yield match
            process.send_signal(signal.SIGTERM)
            assert process.wait(_START_S) in (0, -signal.SIGTERM), process.stdout.read()
        finally:
            process.kill()
            process.communicate()


def install(folder: Path) -> Path:
    """Build the wheel and install it without extras; return the environment."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(ROOT)]
    subprocess.run([*build, "--wheel-dir", str(folder / "wheels")], check=True, env=_pip_variables())
    (wheel,) = (folder / "wheels").glob("*.whl")
    return _install(folder / "environment", str(wheel))


def install_extra(folder: Path, wheel: Path, extra: str) -> Path:
    """Install a built wheel with one extra; return the environment."""
    return _install(folder / extra, f"{wheel}[{extra}]")


def _install(environment: Path, requirement: str) -> Path:
    """Install into a new environment: with uv in seconds, with pip in ten times as long."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python, uv = str(environment / "bin" / "python"), shutil.which("uv")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", requirement]
    command = [uv, "pip", "install", "--quiet", "--python", python, requirement] if uv else pip
    subprocess.run(command, check=True, env=_pip_variables())
    return environment


def _pip_variables() -> dict[str, str]:
    return {**os.environ, "SSL_CERT_FILE": SYSTEMS_CERTIFICATES} if SYSTEMS_CERTIFICATES else {**os.environ}
