"""Find the openings that a command's text shows it needs beyond its sandbox: paths, hosts, or running
outside.

Needs found here are asked about before the command runs. A need that is missed makes the command fail at
the sandbox and is asked about then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from whet.approval.addresses import is_this_machine
from whet.approval.exposure import find_shown_words
from whet.approval.paths import absolute_path, is_plain_device, within
from whet.approval.repository import remote_urls
from whet.approval.risk import CommandSetting, RiskScope
from whet.late import late_pattern
from whet.sandbox.hosts import read_package_indexes
from whet.sandbox.policy import ANY_HOST, UNCONFINED, Opening, is_temporary
from whet.shell.options import operands
from whet.shell.programs import program
from whet.shell.words import Word

_RUN_OUTSIDE = Opening("run", UNCONFINED)
_HOST = late_pattern(r"(?:[a-z][\w+.-]*://(?:[^/@\s]*@)?|[\w.-]+@)(\[[0-9a-f:.]+\]|[\w.-]+)", re.IGNORECASE)
_BARE_HOST = late_pattern(r"((?:[\w-]+\.)+[a-z]{2,}|\d+(?:\.\d+){3}|localhost)(?:[:/].*)?", re.IGNORECASE)
_REMOTE_COPY = late_pattern(r"[\w.@-]+:(?!\\)")
_SSH_WORD = late_pattern(r"ssh://|[\w.-]+@[\w.-]+:")
_SSH_REMOTE = late_pattern(r"ssh://|(?:[\w.-]+@)?[\w.-]+:(?!//)")
_WORDS_ONLY = frozenset(("echo", "printf", "cd", "export", "test", "[", "alias", "basename", "dirname"))
_LAST_IS_WRITTEN = frozenset(("cp", "ln", "install", "rsync"))


class Needs:
    """Collects the needs of the simple commands in one text."""

    def __init__(self, scope: RiskScope) -> None:
        self._scope = scope
        self._openings: dict[Opening, None] = {}

    @property
    def openings(self) -> tuple[Opening, ...]:
        """All needs, or only "run outside the sandbox" if that is one of them."""
        return (_RUN_OUTSIDE,) if _RUN_OUTSIDE in self._openings else tuple(self._openings)

    def add_command(self, name: str, words: Sequence[Word], setting: CommandSetting, *, reads: bool) -> None:
        """Add a simple command, program left out. `reads`: it is known to change nothing."""
        if "outside" in program(name).kinds and not reads:
            self._add([_RUN_OUTSIDE])
        elif name not in _WORDS_ONLY:
            self._add(self._paths(name, words, setting, reads))

    def add_network(self, name: str, words: Sequence[Word], setting: CommandSetting) -> None:
        """Add a simple command that connects. The sandbox has a proxy for HTTP, but none for ssh."""
        if _connects_by_ssh(name, words, setting):
            self._add([_RUN_OUTSIDE])
        self._add(Opening("reach", host) for host in _hosts(name, words, setting) if host)

    def add_written_file(self, target: Word, setting: CommandSetting) -> None:
        """Add a file that the shell writes."""
        if not target.dynamic:
            self._add(self._path("write", target, setting))

    def _add(self, openings: Iterator[Opening] | list[Opening]) -> None:
        self._openings.update(dict.fromkeys(openings))

    def _paths(
        self, name: str, words: Sequence[Word], setting: CommandSetting, reads: bool
    ) -> Iterator[Opening]:
        kinds = program(name).kinds
        writes = not reads and bool(kinds & {"writes", "destroys"} or name in ("sed", "chown", "chgrp"))
        sources = operands(words) if kinds & {"reads", "names-only"} else find_shown_words(name, words) or ()
        # Copied or linked sources are only read: later commands in the text must not write through them.
        targets = operands(words)[-1:] if name in _LAST_IS_WRITTEN else []
        for word in (*sources, *(target for target in targets if target not in sources)):
            if not word.dynamic and not word.text.startswith("-"):
                written = word in targets if targets else writes
                yield from self._path("write" if written else "read", word, setting)

    def _path(self, kind: str, word: Word, setting: CommandSetting) -> Iterator[Opening]:
        full = absolute_path(word.text, setting.cwd)
        if full is None or is_plain_device(full) or len(full) > 4_000:
            return
        if re.match(r"/(proc|sys|dev)(/|$)", full):
            return  # a sandbox has its own
        full = os.path.realpath(full)
        if within(full, self._scope.workspace):
            if kind == "write" and re.search(r"/\.git/(hooks|config)", full):
                yield Opening("write", full)
            return
        if not os.path.lexists(full):
            if kind == "read":
                return
            while not os.path.lexists(full):
                full = os.path.dirname(full)
        is_whole_home = within(self._scope.home, full) or within(full, self._scope.whet_home)
        opening = Opening("write" if kind == "write" else "read", full)
        yield _RUN_OUTSIDE if is_whole_home and not is_temporary(full) else opening


def _connects_by_ssh(name: str, words: Sequence[Word], setting: CommandSetting) -> bool:
    """Return whether rsync or git connects by ssh, or by rsync's own protocol."""
    if name not in ("rsync", "git"):
        return False
    addresses = [word.text for word in operands(words)]
    pattern = _REMOTE_COPY if name == "rsync" else _SSH_WORD
    if name == "git" and setting.cwd is not None and not any(_HOST.search(text) for text in addresses):
        addresses, pattern = remote_urls(setting.cwd), _SSH_REMOTE
    return any(pattern.match(address) for address in addresses)


def _hosts(name: str, words: Sequence[Word], setting: CommandSetting) -> list[str]:
    """Return the hosts that a command names, or "any public host" if it names none and may connect
    anywhere."""
    kinds = program(name).kinds
    # for these, the text after an @ is a version, not a host
    has_versions = "verb-tells" in kinds and name != "git"
    written = (host for word in words for host in _HOST.finditer(word.text))
    names = [host[1] for host in written if not has_versions or "://" in host[0]]
    if not names and "network" in kinds:
        bare = [match for word in operands(words) if (match := _BARE_HOST.fullmatch(word.text))]
        names = [
            bare_match[1]
            for bare_match in bare
            if not os.path.lexists(absolute_path(bare_match[0], setting.cwd) or "")
        ]
    if not names and name == "git" and setting.cwd is not None:
        names = [host[1] for url in remote_urls(setting.cwd) for host in _HOST.finditer(url)]
        names = names or [""]
    if not names and "network" not in kinds:
        names = list(read_package_indexes(os.environ))
    hosts = [host.strip("[]").lower() for host in names or [ANY_HOST]]
    return [host for host in hosts if not is_this_machine(host)]
