"""Which servers a project gets: by its files, from its own folders or PATH, not by a repository's word."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from whet.config.permission_settings import LanguageServerSettings
from whet.lsp.kinds import find_servers


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    return folder


@pytest.fixture
def find(tmp_path: Path, work: Path) -> Callable[..., dict[str, str]]:
    """Find servers with a PATH of one folder; returns the command of each kind."""
    (tmp_path / "bin").mkdir()

    def find(**settings: LanguageServerSettings) -> dict[str, str]:
        programs = find_servers(work, settings, {"PATH": str(tmp_path / "bin")})
        return {server.kind.name: " ".join(server.command).replace(str(tmp_path), "") for server in programs}

    return find


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def typescript(folder: Path, version: str) -> None:
    package = folder / "node_modules" / "typescript"
    program(package / "bin" / "tsc")
    (package / "package.json").write_text(json.dumps({"version": version}))
    (folder / "node_modules" / ".bin").mkdir(exist_ok=True)
    (folder / "node_modules" / ".bin" / "tsc").symlink_to("../typescript/bin/tsc")


def test_a_server_is_found_by_the_project_s_files_and_its_own_comes_first(
    tmp_path: Path, work: Path, find: Callable[..., dict[str, str]]
) -> None:
    for name in ("gopls", "pyright-langserver", "rust-analyzer"):
        program(tmp_path / "bin" / name)
    assert find() == {}, "no file is code"
    (work / "src" / "main.go").touch()
    (work / "src" / "a.pyi").touch()
    assert find() == {"python": "/bin/pyright-langserver --stdio", "go": "/bin/gopls"}
    program(work / ".venv" / "bin" / "pylsp")
    assert find()["python"] == "/project/.venv/bin/pylsp"
    program(work / ".venv" / "bin" / "basedpyright-langserver")
    assert find()["python"] == "/project/.venv/bin/basedpyright-langserver --stdio"


def test_files_of_dependencies_count_for_nothing(
    tmp_path: Path, work: Path, find: Callable[..., dict[str, str]]
) -> None:
    program(tmp_path / "bin" / "gopls")
    for folder in ("node_modules/x", ".hidden", "vendor"):
        (work / folder).mkdir(parents=True)
        (work / folder / "a.go").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.go").touch()
    (work / "link").symlink_to(tmp_path / "elsewhere")
    assert find() == {}


def test_typescript_is_its_own_server_from_version_7(
    tmp_path: Path, work: Path, find: Callable[..., dict[str, str]]
) -> None:
    (work / "a.ts").touch()
    program(tmp_path / "bin" / "typescript-language-server")
    typescript(work, "5.9.3")
    assert find() == {"typescript": "/bin/typescript-language-server --stdio"}
    package = work / "node_modules" / "typescript" / "package.json"
    package.write_text('{"version": "7.0.2"}')
    assert find() == {"typescript": "/project/node_modules/.bin/tsc --lsp --stdio"}
    for text in ("[", "{}", '{"version": "seven"}'):
        package.write_text(text)
        assert find() == {"typescript": "/bin/typescript-language-server --stdio"}, text
    package.unlink()
    os.mkfifo(package)
    assert find() == {"typescript": "/bin/typescript-language-server --stdio"}, "a pipe is not waited for"


def test_settings_add_replace_and_turn_off_servers(
    tmp_path: Path, work: Path, find: Callable[..., dict[str, str]]
) -> None:
    for name in ("gopls", "zls", "my-gopls"):
        program(tmp_path / "bin" / name)
    for name in ("a.go", "b.zig"):
        (work / name).touch()
    zig = LanguageServerSettings("zls", ("--quiet",), ("*.zig",))
    assert find(zig=zig) == {"zig": "/bin/zls --quiet", "go": "/bin/gopls"}
    assert find(go=LanguageServerSettings("my-gopls")) == {"go": "/bin/my-gopls"}
    assert find(go=LanguageServerSettings(enabled=False)) == {}
    assert find(zig=LanguageServerSettings("zls")) == {"go": "/bin/gopls"}, "it names no files"
    own = LanguageServerSettings(str(tmp_path / "bin" / "zls"), files=("go",))
    assert find(mine=own) == {"mine": "/bin/zls"}, "a setting of the person comes first"
