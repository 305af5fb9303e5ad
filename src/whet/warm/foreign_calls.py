"""Read the calls of other agents' sessions as calls of our tools, so that they can become examples.

Only calls that our tools can make with the same meaning are read so; all others keep their names. Where an
example ran is said beside it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from whet.contract.texts import from_json
from whet.store.calls import MinedSession, StoredCall

_SHELLS = ("sh", "bash", "zsh", "dash")
_Arguments: TypeAlias = dict[str, Any]
_Conversion: TypeAlias = tuple[str, Callable[[Mapping[str, Any]], _Arguments]]


def convert_call(call: StoredCall, session: MinedSession) -> StoredCall:
    """Return a call of an imported session with the name and the arguments of our tool, or unchanged."""
    conversion = _CONVERSIONS.get(session.source, {}).get(call.name)
    if conversion is None:
        return call
    name, convert = conversion
    try:
        arguments = convert(from_json(call.arguments, dict[str, Any]))
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, StopIteration, ValueError):
        return call
    path = arguments.get("path")
    if isinstance(path, str) and session.workspace and os.path.isabs(path):
        relative = os.path.relpath(path, session.workspace)
        arguments["path"] = path if relative.startswith("..") else relative
    return msgspec.structs.replace(call, name=name, arguments=msgspec.json.encode(arguments).decode())


def is_foreign(source: str) -> bool:
    """Return whether the sessions of a source are other agents', whose tools have other names."""
    return source in _CONVERSIONS


def _command(given: Mapping[str, Any]) -> _Arguments:
    if given.get("run_in_background"):
        raise ValueError("its result is another call's")
    command = given["command"] if "command" in given else given["cmd"]
    if isinstance(command, list):  # Codex: the words of a command, or a shell with its text
        words = [str(word) for word in command]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        is_shell = len(words) == 3 and os.path.basename(words[0]) in _SHELLS and words[1] in ("-c", "-lc")
        command = words[2] if is_shell else shlex.join(words)
    elif not isinstance(command, str):
        raise ValueError("it is not a command")
    return _keep(given, {"workdir": "workdir"}, command=command)


def _read(given: Mapping[str, Any]) -> _Arguments:
    path = next(given[name] for name in ("file_path", "filePath", "path") if name in given)
    return _keep(given, {"offset": "offset", "limit": "limit"}, path=path)


def _write(given: Mapping[str, Any]) -> _Arguments:
    path = next(given[name] for name in ("file_path", "filePath", "path") if name in given)
    return {"path": path, "content": given["content"]}


def _edit(given: Mapping[str, Any]) -> _Arguments:
    path = next(given[name] for name in ("file_path", "filePath", "path") if name in given)
    old = next(given[name] for name in ("old_string", "oldString", "oldText") if name in given)
    new = next(given[name] for name in ("new_string", "newString", "newText") if name in given)
    return {"path": path, "old_string": old, "new_string": new}


def _grep(given: Mapping[str, Any]) -> _Arguments:
    return _keep(given, {"path": "path", "glob": "glob", "include": "glob"}, pattern=given["pattern"])


def _glob(given: Mapping[str, Any]) -> _Arguments:
    return _keep(given, {"path": "path"}, pattern=given["pattern"], target="names")


def _keep(given: Mapping[str, Any], names: Mapping[str, str], **fixed: Any) -> _Arguments:
    return fixed | {ours: given[theirs] for theirs, ours in names.items() if given.get(theirs)}


_SHELL, _READ = ("terminal", _command), ("read_file", _read)
_WRITE, _EDIT = ("write_file", _write), ("patch", _edit)
_GREP, _GLOB = ("search_files", _grep), ("search_files", _glob)
_CONVERSIONS: dict[str, dict[str, _Conversion]] = {
    "claude-code": {
        "Bash": _SHELL,
        "Read": _READ,
        "Write": _WRITE,
        "Edit": _EDIT,
        "Grep": _GREP,
        "Glob": _GLOB,
    },
    "codex": dict.fromkeys(("shell", "local_shell", "exec_command"), _SHELL),
    "opencode": {"bash": _SHELL, "read": _READ, "write": _WRITE, "edit": _EDIT, "grep": _GREP, "glob": _GLOB},
    "pi": {"bash": _SHELL, "read": _READ, "write": _WRITE, "edit": _EDIT, "grep": _GREP, "find": _GLOB},
}
"""By program and tool: our tool, and the conversion of the arguments."""
