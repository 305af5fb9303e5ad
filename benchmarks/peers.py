"""Peers from PyPI and npm, in folders of their own below `.bench/peers`, installed when first needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment

_NPM = ROOT / ".bench" / "peers" / "npm"

PACKAGES = {
    "httpx": ["httpx"],
    "openai": ["openai"],
    "pydantic-ai": ["pydantic-ai-slim[openai]"],
    "hermes-agent": ["hermes-agent"],
    "aiohttp": ["aiohttp"],
    "schemathesis": ["schemathesis"],
    "clients": [
        "openai",
        "anthropic",
        "litellm",
        "llm",
        "openai-agents",
        "langchain-openai",
        "langchain-anthropic",
        "pydantic-ai-slim[openai,anthropic]",
    ],
}


def python_of(peer: str) -> Path:
    """Give the interpreter that has `peer` installed; makes it at the first call. Raises where pip fails."""
    folder = ROOT / ".bench" / "peers" / peer
    stamp = folder / ".installed"
    if not stamp.exists():
        print(f"  installing {peer} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, *PACKAGES[peer]], check=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "compileall", "-q", str(folder / "lib")], check=False
        )
        stamp.touch()
    return folder / "bin" / "python"


def version_of(peer: str) -> str:
    """Give the installed version of `peer`'s main package."""
    name = PACKAGES[peer][0].split("[")[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([str(python_of(peer)), "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def install_npm(package: str) -> bool:
    """Install a package of npm if it is missing. Return False if npm can't."""
    if _npm_folder(package).exists():
        return True
    _NPM.mkdir(parents=True, exist_ok=True)
    print(f"  installing {package} ...", file=sys.stderr)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_NPM), package]
    try:
        subprocess.run(npm, check=True, capture_output=True, env=clean_environment(), timeout=900)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def npm_version(package: str) -> str:
    """Return the installed version of a package of npm."""
    return str(json.loads((_npm_folder(package) / "package.json").read_text("utf-8"))["version"])


def npm_program(name: str) -> str:
    """Return the path of a program that a package of npm brings."""
    return str(_NPM / "node_modules" / ".bin" / name)


def _npm_folder(package: str) -> Path:
    return _NPM / "node_modules" / package
