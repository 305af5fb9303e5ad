"""Find out whether the bytes of a file or result are this machine's own work or came from elsewhere.

The sandbox counts the bytes that a call receives from the network; without a sandbox, the command's text
decides. A file is foreign if it was written or moved while a call ran that received such bytes or read a
foreign file. The store has the times of all calls of all sessions. Vendored and installed folders are
recognised by their path.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import apsw

from whet.contract.texts import parse_arguments
from whet.contract.tools import tags_of
from whet.regular import read_regular_text
from whet.shell.fetches import reaches_out
from whet.shell.reading import file_names, read
from whet.store import calls
from whet.store.calls import PastCall

_INSTALLED = re.compile(
    r"(?:^|[\s/\"'=])(?:node_modules|site-packages|dist-packages|vendor(?:ed)?|third[_-]party|bower_components"
    r"|\.venv|venv(?=/|\s*(?:$|[;|&\n]))|\.tox|\.cargo/registry|go/pkg/mod|\.m2|\.gem|\.gradle/caches|Pods|[Dd]ownloads?|\.cache)(?:[/\s\"']|$)"
)
_MAX_DEPTH = 4
_MAX_WORDS, _MAX_FOLDERS, _MAX_IN_SCRIPT = 200, 8, 30
_SCRIPT_BYTES = 20_000


def may_have_received(command: str, received: bool | None) -> bool:
    """Return whether a command may have received bytes from the network. `received` is the sandbox's answer,
    or None if there was no sandbox."""
    return reaches_out(command) if received is None else received


def is_installed(path: str) -> bool:
    """Return whether a path is in a folder of other people's code or of downloads."""
    return _INSTALLED.search(path) is not None


def names_installed_path(command: str) -> bool:
    """Return whether a command names a path of other people's code or of downloads. Programs that it runs
    from a `bin` folder, and options that set a cache folder, do not count."""
    command = re.sub(r"\s--?[\w-]*cache[\w-]*[=\s]\S+", " ", command)
    for word in read(command).programs:
        if re.search(r"/\.?bin/[^/]+$", word):
            command = command.replace(word, " ", 1)
    return is_installed(command)


class FileOrigins:
    """Finds out where the bytes of files came from. Reads the disk and the store, inside a transaction."""

    def __init__(self, connection: apsw.Connection, workspace: str) -> None:
        self._connection = connection
        self._named_workspace = workspace
        self._workspace = Path(workspace or ".")
        self._reasons: dict[str, str | None] = {}
        self._running_calls: dict[int, list[PastCall]] = {}
        self._script_paths: dict[str, list[str]] = {}

    def why_any_foreign(self, words: Iterable[str]) -> str:
        """Return why one of the files that these words may name is from elsewhere, or an empty string.

        Words are also looked up in the folders that other words name.
        """
        paths = list(dict.fromkeys(filter(None, words)))[:_MAX_WORDS]
        folders = [word for word in paths if os.path.isdir(self._resolve(word))][:_MAX_FOLDERS]
        inside = [f"{folder}/{word}" for folder in folders for word in paths if not os.path.isabs(word)]
        for path in (*paths, *inside):
            if reason := self.why_foreign(path):
                return reason
        return ""

    def why_foreign(self, path: str, depth: int = 0) -> str | None:
        """Return why a file's bytes are from elsewhere, an empty string if they are local, or None if there
        is no file. `depth` is the number of calls through which the search has reached it."""
        if re.search(r"[*?\[]", path) and "\0" not in path:
            matches = islice(glob.iglob(str(self._resolve(path))), _MAX_WORDS)
            return next((why for file in matches if (why := self.why_foreign(file, depth))), None)
        full_path = self._resolve(path)
        key = str(full_path)
        if key in self._reasons:
            return self._reasons[key]
        self._reasons[key] = ""
        try:
            info = os.stat(full_path)
        except (OSError, ValueError):
            self._reasons[key] = self._why_by_name(path, key, depth) or None
            return self._reasons[key]
        target = os.path.realpath(full_path)
        within = os.path.relpath(target, os.path.realpath(self._workspace))
        if target != os.path.abspath(full_path) and is_installed(within):
            self._reasons[key] = f"{path} leads to {target[-80:]}, which is installed or downloaded"
        for at_ns in {info.st_mtime_ns, info.st_ctime_ns}:  # moving a file keeps its mtime
            for call in self._running_at(at_ns // 1_000_000):
                names_it = any(str(self._resolve(word)) == key for word in _list_words(call))
                why = self._why_output_foreign(call, path, key, depth)
                self._reasons[key] = (
                    self._reasons[key] or why or (names_it and self._why_by_name(path, key, depth)) or ""
                )
        return self._reasons[key]

    def _running_at(self, at_ms: int) -> list[PastCall]:
        if at_ms not in self._running_calls:  # files that arrived together share one time
            self._running_calls[at_ms] = list(calls.find_running_calls(self._connection, at_ms))
        return self._running_calls[at_ms]

    def _resolve(self, path: str) -> Path:
        return self._workspace / os.path.expanduser(path)

    def _why_output_foreign(self, call: PastCall, path: str, key: str, depth: int) -> str:
        """Return why the output of a call is from elsewhere (it received bytes, or read a foreign file), or
        an empty string."""
        if "command" not in tags_of(call.name):
            return ""
        inputs: list[str] = []
        if depth < _MAX_DEPTH:
            inputs = [word for word in _list_words(call) if word and str(self._resolve(word)) != key]
        if not depth:
            inputs += [path for word in inputs for path in self._paths_in_script(word)]
        command = str(parse_arguments(call.arguments).get("command", ""))
        is_foreign = any(self.why_foreign(word, depth + 1) for word in inputs)
        if not is_foreign and not may_have_received(command, call.effects.received):
            return ""
        return f"{path} came with `{' '.join(command.split())[:80]}`"

    def _paths_in_script(self, path: str) -> list[str]:
        """Return the paths that a file names which a call may have run as a script."""
        if path not in self._script_paths:
            text = ""
            with suppress(OSError, ValueError):
                text = read_regular_text(self._resolve(path), _SCRIPT_BYTES)
            is_shell = path.endswith("sh") or re.match(r"#!.*sh\b", text)
            paths = read(text).files if is_shell else file_names([f" {text}"])
            words = (word for word in paths if re.search(r"\w[./]\w", word))
            self._script_paths[path] = list(islice(words, _MAX_IN_SCRIPT))
        return self._script_paths[path]

    def _why_by_name(self, path: str, key: str, depth: int) -> str:
        """Return why a file that may be gone or changed is from elsewhere, judged by the calls that name it,
        or an empty string."""
        for call in calls.find_calls_naming(self._connection, self._named_workspace, os.path.basename(path)):
            changed = (*call.effects.edits, *call.effects.touched)
            names = (*(change.path for change in changed), *_list_words(call))
            is_named = any(str(self._resolve(name)) == key for name in names)
            if is_named and (why := self._why_output_foreign(call, path, key, depth)):
                return why
        return ""


def _list_words(call: PastCall) -> Sequence[str]:
    """Return the words of a call that may name files."""
    arguments = parse_arguments(call.arguments)
    if command := arguments.get("command"):
        return read(str(command)).files
    return [str(arguments.get("path", ""))]
