"""Describe the action of a tool call: its pieces for the rules, its risk, and the text that a person sees.

There is one function per kind of tool whose arguments matter, selected by the tool's tags. All other tools
are judged by their declared effects. Arguments are judged as they will run. This module has no part in
rules, modes or people.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from whet.approval.addresses import plain_path, url_spellings
from whet.approval.danger_code import judge_query
from whet.approval.paths import (
    RUN_BY_OTHERS,
    WRITING,
    absolute_path,
    is_run_by_others,
    is_whets_own,
    resolve_links,
    within,
    zone_of,
)
from whet.approval.risk import Analyse, Lasting, Level, Piece, RiskScope, list_reasons, rank, worst
from whet.approval.scopes import escape_pattern
from whet.contract.errors import BadInput
from whet.contract.protocols import GateCall
from whet.contract.tags import BUILT_IN
from whet.contract.texts import iterate_texts_and_keys, paths_in_uri
from whet.contract.tools import Tag, Tool
from whet.file_names import find_named_path
from whet.internet import canonical_host
from whet.late import late_pattern
from whet.log import mask
from whet.sandbox.policy import Opening
from whet.visible import WHOLE, visible

_MAX_NAME_CHARS, _MAX_NAMES = 4_096, 5_000


class ActionView(msgspec.Struct, frozen=True):
    """A call as the policy sees it.

    `full_text` is the whole text, for deny and ask rules; a person sees `subject`. `typed` are the
    commands in text typed into a running program (`typed_text`); deny and ask rules for commands apply to
    them, allow rules don't. `needs` are the openings that a sandbox would require, `downloads` the files that
    the call fetches from the network. `spellings` are other forms of `full_text` for deny and ask rules.
    """

    tool: str
    full_text: str
    subject: str
    pieces: tuple[Piece, ...]
    reasons: tuple[str, ...] = ()
    typed: tuple[Piece, ...] = ()
    needs: tuple[Opening, ...] = ()
    downloads: frozenset[str] = frozenset()
    typed_text: str = ""
    spellings: tuple[str, ...] = ()

    def as_command(self, tool: str) -> ActionView:
        """Return what is typed as a call of a command tool, for its rules."""
        return msgspec.structs.replace(
            self, tool=tool, full_text=self.typed_text, pieces=self.typed, typed=()
        )

    @property
    def lasts(self) -> bool:
        """Whether it has an effect that a sandbox doesn't prevent, even if it needs no openings."""
        return self.has_reason(Lasting)

    def has_reason(self, kind: type[str]) -> bool:
        """Return whether a piece has a reason of a kind."""
        return any(isinstance(reason, kind) for piece in self.pieces for reason in piece.reasons)

    @property
    def level(self) -> Level:
        """The risk of the whole action."""
        return worst(piece.level for piece in self.pieces)


def depends_on_location(tool: Tool) -> bool:
    """Return whether the effect of a call of `tool` depends on its folder and workspace. Otherwise its
    declared effects are enough. Any argument of another package's tool may name a file."""
    return not tool.tags.isdisjoint(_BY_TAG) or tool.name not in BUILT_IN


def describe(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    """Describe the action of a call. Raises ValueError if an argument has the wrong type."""
    for tag, judge in _BY_TAG.items():
        if tag in call.tool.tags:
            return judge(call, scope, analyse)
    effects = call.tool.effects
    if "send" in effects:
        return _simple(call, "dangerous", _arguments(call), ("sends something to others",))
    if "destructive" in call.tool.tags:
        return _simple(
            call, "dangerous", _arguments(call), ("its server says that it may destroy something",)
        )
    if call.tool.name not in BUILT_IN and (reason := _find_named_secret(call, scope)):
        return _simple(call, "dangerous", _arguments(call), (reason,))
    level: Level = "safe" if effects and effects <= {"read"} else "normal"
    return _simple(call, level, _arguments(call))


def _find_named_secret(call: GateCall, scope: RiskScope) -> str:
    """Return why a call needs a question if one of its arguments, at any depth, names an existing file that
    holds secrets. Returns an empty string if none does."""
    names = dict.fromkeys(
        name
        for text in iterate_texts_and_keys(call.arguments)
        if len(text) <= _MAX_NAME_CHARS
        for name in paths_in_uri(text)
    )
    if len(names) > _MAX_NAMES:
        return "its arguments name too many files to check"
    for name in names:
        if not name or "\0" in name or not os.path.lexists(path := _find_named(name, scope)):
            continue
        piece = _file_piece(name, _without_home(scope, path), False)
        if piece.level != "safe":
            return piece.reasons[0]
    return ""


def _without_home(scope: RiskScope, path: str) -> RiskScope:
    """Return a scope in which Whet's home is no secret, if the owner works in a folder of it and the path
    leads into that folder: then its files count by their names."""
    works_inside = scope.workspace != scope.whet_home and within(scope.workspace, scope.whet_home)
    if works_inside and within(resolve_links(path) or path, scope.workspace):
        return msgspec.structs.replace(scope, whet_home=os.path.join(scope.workspace, ".none"))
    return scope


def _simple(call: GateCall, level: Level, text: str, reasons: tuple[str, ...] = ()) -> ActionView:
    name = call.tool.name
    piece = Piece(text, name, level, reasons, "*" if level == "normal" else "")
    return ActionView(name, text, visible(f"{name} {text}".strip(), WHOLE), (piece,), reasons)


def _arguments(call: GateCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False, sort_keys=True) if call.arguments else ""


def _text(call: GateCall, name: str, default: str = "") -> str:
    value = call.arguments.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")
    return value


def _working_folder(workspace: str, workdir: str) -> str:
    """Return the folder that a command starts in. Links are followed, as the tool does."""
    if not workdir:
        return workspace
    path = os.path.join(workspace, workdir)
    folder = resolve_links(path) or os.path.normpath(path)
    return workspace if folder == resolve_links(workspace) else folder


def _terminal(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    command, stdin = _text(call, "command"), _text(call, "stdin")
    cwd = _working_folder(scope.workspace, _text(call, "workdir"))
    risk = analyse(command, cwd, scope, stdin)
    subject = visible(command, WHOLE)
    if cwd != scope.workspace:
        subject = f"{subject}\n(in {visible(_text(call, 'workdir'), WHOLE)})"
    if stdin:
        subject = f"{subject}\n(input: {visible(stdin, WHOLE)})"
    pieces = risk.commands
    if worst(piece.level for piece in pieces) != risk.level:
        pieces = (*pieces, Piece(command, "", risk.level, risk.reasons))
    return ActionView(
        call.tool.name, command, subject, pieces, risk.reasons, needs=risk.needs, downloads=risk.downloads
    )


_SHELL_ESCAPE = late_pattern(r"^[^\S\n]*[:\\]*!+", re.MULTILINE)


def _process(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    action, name = _text(call, "action"), call.tool.name
    identity = _text(call, "id")
    if action in ("list", "poll", "wait"):
        return _simple(call, "safe", f"{action} {identity}".strip())
    if action != "write":
        text = f"{action} {identity}".strip()
        return ActionView(
            name, text, visible(f"process {text}"), (Piece(text, action, "normal", (), f"{action} *"),)
        )
    text = _text(call, "text")
    risk = analyse(text, scope.workspace, scope, "")
    # The process may be a shell, a database client, or an editor that runs what follows a `!`.
    keys = _SHELL_ESCAPE.sub("", text)
    escaped = analyse(keys, scope.workspace, scope, "") if keys != text else risk
    query = judge_query(text) or ("safe", "")
    level = worst(["normal", risk.level, escaped.level, query[0]])
    typed = risk.commands if escaped is risk else (*risk.commands, *escaped.commands)
    reasons = (*(reason for piece in typed for reason in piece.reasons), query[1])
    piece = Piece(f"write {identity} {text}", "write", level, tuple(dict.fromkeys(filter(None, reasons))))
    subject = visible(f"send to process {identity}: {text}", WHOLE)
    texts = list_reasons((piece,))
    return ActionView(name, piece.text, subject, (piece,), texts, typed=typed, typed_text=text)


def _file_piece(path: str, scope: RiskScope, writes: bool) -> Piece:
    named = _find_named(path, scope)
    full = absolute_path(named, scope.workspace) or path
    target = resolve_links(named) or full
    names = _path_forms(full, scope) + (() if target == full else _path_forms(target, scope))
    if writes:
        judged = [_judge_written(location, scope) for location in dict.fromkeys((full, target))]
        level, reason = max(judged, key=lambda finding: rank(finding[0]))
    else:
        # Imported here because it takes 3 ms with its tables, and the start of a session judges no call.
        from whet.approval.secrets import holds_secrets, is_private_at_home, is_secret  # noqa: PLC0415

        secret = any(
            is_secret(location, scope)
            or (location != scope.workspace and holds_secrets(location, scope))
            or (not is_whets_own(location, scope) and is_private_at_home(location, scope))
            for location in (full, target)
        )
        level, reason = ("dangerous", "reads a file that usually holds secrets") if secret else ("safe", "")
    # A grant or an allow rule must apply to the target of a link, so the target's name comes first.
    grant = escape_pattern(names[-2]) if level == "normal" else ""
    folder = escape_pattern(os.path.dirname(names[-2])) if grant else ""
    reasons = (reason,) if reason else ()
    return Piece(names[-2], names[-2], level, reasons, grant, names, f"{folder}/*" if folder else "")


def _judge_written(path: str, scope: RiskScope) -> tuple[Level, str]:
    """Return the risk of writing to a path, and why."""
    level, reason = WRITING[zone_of(path, scope.workspace, scope)]
    level = "normal" if level == "safe" else level
    if level == "normal" and is_run_by_others(path, scope):
        return "dangerous", RUN_BY_OTHERS
    return level, reason


def _find_named(path: str, scope: RiskScope) -> str:
    """Return the path that the file tools would open: not always the spelled one."""
    name = os.path.expanduser(path)
    try:
        return find_named_path(Path(scope.workspace), name)
    except (BadInput, OSError, ValueError):
        return os.path.join(scope.workspace, name)


def _path_forms(full: str, scope: RiskScope) -> tuple[str, str]:
    """Return the path in two forms: relative to the workspace, and absolute."""
    inside = within(full, scope.workspace) and full != scope.workspace
    return (full[len(scope.workspace.rstrip("/")) + 1 :] if inside else full), full


def _files(call: GateCall, scope: RiskScope, paths: list[str], writes: bool) -> ActionView:
    pieces = tuple(_file_piece(path, scope, writes) for path in paths)
    text = " ".join(paths)
    subject = visible(f"{call.tool.name} {text}", WHOLE)
    return ActionView(call.tool.name, text, subject, pieces, list_reasons(pieces))


def _path(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    """Describe one file, or the files in a diff that the tool itself reads."""
    if "edits" not in call.tool.tags:
        return _files(call, scope, [_text(call, "path", ".")], False)
    paths = call.tool.names(call.arguments) if call.tool.names else [_text(call, "path")]
    return _files(call, scope, list(paths), True)


def _fetch(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    return describe_url(call.tool.name, _text(call, "url").strip())


def describe_url(tool: str, url: str) -> ActionView:
    """Describe the fetch of an address. Raises ValueError if it is malformed."""
    parts = urlsplit(url)
    spelled = (parts.hostname or "").rstrip(".")
    host = canonical_host(spelled) if spelled else ""
    is_strange = parts.username is not None or re.search(r"[\s\\\x00-\x1f]", url) is not None or not host
    reasons = ("the address holds a key or a password",) if mask(url) != url else ()
    level: Level = "dangerous" if reasons else "normal"
    program = "" if is_strange else host
    piece = Piece(url, program, level, reasons, host if program and level == "normal" else "", (host,))
    # Rules for a whole address see it with the host that is connected to.
    netloc = parts.netloc.lower().replace(spelled, host, 1)
    whole = url if host == spelled else parts._replace(netloc=netloc).geturl()
    pieces = (piece,)
    if program and (plain := plain_path(parts.path)).rstrip("/") != unquote(parts.path).rstrip("/"):
        # A rule that allows a folder of a site must allow what `..` in the address leads to.
        pieces = (piece, msgspec.structs.replace(piece, text=parts._replace(path=plain).geturl()))
    subject = visible(f"{tool} {url}", WHOLE)
    return ActionView(tool, whole, subject, pieces, reasons, spellings=url_spellings(url))


def _learning(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    """Learned changes have their own gate, ask before they touch a person's files, and can each be undone."""
    return _simple(call, "safe", _arguments(call))


def _warm(call: GateCall, scope: RiskScope, analyse: Analyse) -> ActionView:
    action = _text(call, "action")
    reads = action == "list" or (action == "load" and not call.arguments.get("apply"))
    text = f"{action} {_text(call, 'name')}".strip()
    return _simple(call, "safe" if reads else "normal", text)


_BY_TAG: dict[Tag, Callable[[GateCall, RiskScope, Analyse], ActionView]] = {
    "command": _terminal,
    "background": _process,
    "path": _path,
    "url": _fetch,
    "notes": _learning,
    "skills": _learning,
    "templates": _warm,
}
