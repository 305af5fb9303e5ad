"""Each extra alone, in an environment of its own: all that it is for can be imported (`make installed`)."""

from __future__ import annotations

import json
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.imports import ImportGraph
from tests.installed.program import ROOT, Installed, install_extra

pytestmark = pytest.mark.soak
PROJECT = ROOT / "pyproject.toml"
EXTRAS = sorted(tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"])
IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"


@cache
def graph() -> ImportGraph:
    return ImportGraph(ROOT / "src", PROJECT)


def with_extra(whet: Installed, folder: Path, extra: str) -> Installed:
    (wheel,) = (whet.environment.parent / "wheels").glob("*.whl")
    return whet._replace(environment=install_extra(folder, wheel, extra))


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_its_modules_import(whet: Installed, tmp_path: Path, extra: str) -> None:
    packages = graph().extras[extra]
    names = [name for name, chains in graph().chains.items() if chains and chains.keys() <= packages]
    tops = {
        graph().undeclared(one.target) for reader in graph().modules.values() for one in reader.imports
    } & packages
    assert tops, f"no module imports a package of {extra}"
    python = str(with_extra(whet, tmp_path, extra).environment / "bin" / "python")
    command = [python, "-I", "-c", IMPORT, *names, *sorted(tops)]
    done = subprocess.run(command, cwd=whet.work, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_extra_acp_serves_an_editor(whet: Installed, tmp_path: Path) -> None:
    editor = with_extra(whet, tmp_path, "acp")
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    done = subprocess.run(
        editor.command(["acp"]), input=json.dumps(request) + "\n", cwd=editor.work, env=editor.variables,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1, done.stderr
