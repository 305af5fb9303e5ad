"""Find the programs of language servers for a project, of the known kinds and of those in lsp.servers.

A program is looked up in the project's own environment and on PATH. A repository can't configure one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whet.config.permission_settings import LanguageServerSettings
from whet.contract.texts import NOT_JSON, from_json
from whet.regular import read_regular

_OWN_FOLDERS = ("node_modules/.bin", ".venv/bin", "venv/bin")
_MAX_ENTRIES = 2_000
_PACKAGE_BYTES = 100_000
_FIRST_NATIVE = 7
_SKIPPED = frozenset(("node_modules", "venv", "target", "dist", "build", "vendor", "__pycache__"))


class ServerKind(msgspec.Struct, frozen=True):
    """A kind of language server: its programs in order of preference, and the language of each file
    ending."""

    name: str
    programs: tuple[tuple[str, ...], ...]
    languages: Mapping[str, str]
    settings: Mapping[str, Any] = {}
    """Sent as initialization options, and by section when the server asks for its settings."""
    install: str = ""
    """The command that installs the server."""


class ServerProgram(msgspec.Struct, frozen=True):
    """The installed program of a language server. `command` is its path and arguments."""

    kind: ServerKind
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return os.path.basename(self.command[0])


_SCRIPTS = {
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".mts": "typescript",
    ".cts": "typescript",
    ".js": "javascript",
    ".jsx": "javascriptreact",
    ".mjs": "javascript",
    ".cjs": "javascript",
}
# Makes a rename change imports instead of adding `as`.
_NO_ALIASES = {"preferences": {"useAliasesForRenames": False}}
_SCRIPT_SETTINGS = {
    "disableAutomaticTypingAcquisition": True,  # it would fetch packages
    "preferences": {"providePrefixAndSuffixTextForRename": False},
    "typescript": _NO_ALIASES,
    "javascript": _NO_ALIASES,
}
KINDS: tuple[ServerKind, ...] = (
    ServerKind(
        "python",
        (("basedpyright-langserver", "--stdio"), ("pyright-langserver", "--stdio"), ("pylsp",)),
        {".py": "python", ".pyi": "python"},
        {"basedpyright": {"analysis": {"typeCheckingMode": "standard"}}},
        "pip install basedpyright",
    ),
    ServerKind("go", (("gopls",),), {".go": "go"}, install="go install golang.org/x/tools/gopls@latest"),
    ServerKind("rust", (("rust-analyzer",),), {".rs": "rust"}, install="rustup component add rust-analyzer"),
    ServerKind(
        "typescript",
        (
            ("tsc", "--lsp", "--stdio"),
            ("tsgo", "--lsp", "--stdio"),
            ("typescript-language-server", "--stdio"),
        ),
        _SCRIPTS,
        _SCRIPT_SETTINGS,
        "npm install --save-dev typescript typescript-language-server",
    ),
    ServerKind(
        "cpp",
        (("clangd", "--log=error"),),
        {".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp"},
        install="install clangd with the system's packages",
    ),
)


def find_servers(
    workspace: Path,
    settings: Mapping[str, LanguageServerSettings],
    environment: Mapping[str, str] | None = None,
) -> list[ServerProgram]:
    """Return the servers for the languages of a project's files, at most one for each language."""
    candidates = [*_find_programs(list_kinds(settings), workspace, environment)]
    if not candidates:  # most projects: their files need not be listed
        return []
    endings = _list_endings(workspace)
    servers: list[ServerProgram] = []
    taken: set[str] = set()
    for server in candidates:
        languages = server.kind.languages.keys()
        if endings & (languages - taken):
            servers.append(server)
            taken |= languages
    return servers


def list_missing(
    workspace: Path, settings: Mapping[str, LanguageServerSettings], servers: Sequence[ServerProgram]
) -> list[ServerKind]:
    """Return the kinds of servers for those languages of a project's files that `servers` don't cover."""
    endings = _list_endings(workspace).difference(*(server.kind.languages for server in servers))
    return [kind for kind in list_kinds(settings) if endings & kind.languages.keys()]


def find_server(
    ending: str, workspace: Path, settings: Mapping[str, LanguageServerSettings]
) -> ServerProgram | None:
    """Return the program for files with an ending such as ".py", or None if this machine has none."""
    kinds = [kind for kind in list_kinds(settings) if ending in kind.languages]
    return next(_find_programs(kinds, workspace), None)


def list_kinds(settings: Mapping[str, LanguageServerSettings]) -> list[ServerKind]:
    """Return the kinds of servers, without those that the settings turn off. Configured kinds come first."""
    return [*_configured(settings), *(kind for kind in KINDS if kind.name not in settings)]


def _find_programs(
    kinds: Sequence[ServerKind], workspace: Path, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProgram]:
    search_path = (os.environ if environment is None else environment).get("PATH")
    for kind in kinds:
        if (command := _find_program(kind.programs, workspace, search_path)) is not None:
            yield ServerProgram(kind, command)


def _configured(settings: Mapping[str, LanguageServerSettings]) -> Iterator[ServerKind]:
    for name, server in settings.items():
        built_in = next((kind for kind in KINDS if kind.name == name), None)
        languages = {f".{ending.lstrip('*.')}": server.language or name for ending in server.files}
        programs = ((server.command, *server.args),) if server.command else ()
        if built_in is not None:
            languages, programs = languages or dict(built_in.languages), programs or built_in.programs
        if server.enabled and programs and languages:
            yield ServerKind(
                name, programs, languages, server.settings or (built_in.settings if built_in else {})
            )


def _find_program(
    programs: Sequence[tuple[str, ...]], workspace: Path, search_path: str | None
) -> tuple[str, ...] | None:
    own = [str(workspace / folder) for folder in _OWN_FOLDERS]
    for folders in (os.pathsep.join(own), search_path):
        for program, *arguments in programs:
            path = shutil.which(os.path.expanduser(program), path=folders)
            if path and (program != "tsc" or _has_server(path)):
                return (path, *arguments)
    return None


def _has_server(compiler: str) -> bool:
    """Return whether a TypeScript compiler is a language server, too. It is since version 7."""
    package = Path(os.path.realpath(compiler)).parents[1] / "package.json"
    try:
        version = str(from_json(read_regular(package, _PACKAGE_BYTES), dict[str, Any])["version"])
        return int(version.partition(".")[0]) >= _FIRST_NATIVE
    except (OSError, KeyError, ValueError, *NOT_JSON):
        return False


def _list_endings(workspace: Path) -> set[str]:
    """Return the endings of a project's files, from its first `_MAX_ENTRIES` entries."""
    endings: set[str] = set()
    folders, count = [workspace], 0
    for folder in folders:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            count += 1
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                    folders.append(Path(entry.path))
            else:
                endings.add(os.path.splitext(entry.name)[1])
        if count > _MAX_ENTRIES:
            break
    return endings
