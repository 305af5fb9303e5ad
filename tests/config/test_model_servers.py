"""One row of SERVERS makes a model server known, with the keys that may go to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet

SOURCE = Path(whet.__file__).parent
ROW = '    "acme": KnownServer("https://api.acme.example/v1", ("ACME_API_KEY",), model="anvil-1"),\n}\n'


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with one row more, as CONTRIBUTING.md describes it."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(SOURCE, tree / "whet", ignore=shutil.ignore_patterns("__pycache__"))
    table = tree / "whet" / "config" / "model_servers.py"
    text = table.read_text("utf-8")
    assert text.endswith("}\n")
    table.write_text(text.removesuffix("}\n") + ROW, "utf-8")
    return tree


def run(tree: Path, home: Path, *words: str) -> Any:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "WHET_HOME": str(home / "whet")}
    environ |= {"ACME_API_KEY": "a-key-of-acme", "PYTHONPATH": str(tree)}
    code = "from whet.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, *words]
    done = subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_one_row_makes_a_server_and_its_key_known(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "whet").mkdir()
    (tmp_path / "whet" / "config.yaml").write_text("model:\n  provider: acme\n", "utf-8")
    shown = run(tree, tmp_path, "model", "show", "--json")
    assert "acme" in str(shown) and "anvil-1" in str(shown)
    code = "from whet.config.key_hosts import may_send;"
    code += "urls = ('https://api.acme.example/v1', 'https://x.example');"
    code += "print(*(may_send('ACME_API_KEY', url) for url in urls))"
    command, environ = [sys.executable, "-c", code], {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
