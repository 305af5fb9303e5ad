"""Peers in environments of their own below `.bench/peers`, installed when a benchmark first needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measure import ROOT

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
