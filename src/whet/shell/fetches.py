"""Which commands may fetch from the network, the sources they name, and the file names they leave.

Judged by the text alone; a sandbox counts the bytes really received. Loopback addresses are this machine.
"""

from __future__ import annotations

import re
from itertools import pairwise

from whet.late import late_pattern
from whet.shell.programs import program
from whet.shell.reading import CommandReading, ReadPart, file_names, read

VERBS = late_pattern(
    r"\b(?:git (?:-\S+ \S+ )*(?:clone|fetch|pull|push|ls-remote|submodule)"
    r"|svn (?:co|checkout|up\w*|export)|hg (?:clone|pull)"
    r"|(?P<installer>pip3?|npm|pnpm|yarn|uv|poetry|cargo|go|gem|brew|apt(?:-get)?|dnf|yum|apk|composer|bundle"
    r"|conda|bun|deno) (?:-\S+ )*(?:\S+ )?(?:-\S+ )*"
    r"(?:install|add|sync|ci|pull|push|get|i|update|upgrade|publish|download|fetch|search|login|dlx|show|view|info)"
    r"|(?:docker|podman) (?:\S+ )?(?:pull|push|search|login|publish|update|upgrade|install|add))(?![\w-])"
)
"""Programs with a verb that connects. The operands of an installer are packages."""
_CODE = late_pattern(
    r"urllib|requests\.|httpx|aiohttp|http\.client|fetch\(|axios|net/http|open-uri|socket\.|/dev/tcp/"
)
_URL = late_pattern(
    # in braces it is an XML name
    r"(?<!\{)\b(?:https?|ftp|ssh|git)://(?:[^@\s/]*@)?(\[[^\s\]]+|[^\s/\"'<>:]+)"
    r"|\b[\w.-]+@([\w-]+\.[\w.-]+):",
    re.IGNORECASE,
)
# A complete address, a repository in its host's notation, or a host name.
_SOURCE = late_pattern(
    r"\b\w+://[^\s\"'<>()]+|(?<![\w./~-])(?:[\w.-]+/[\w./-]+|[\w.-]+(?=:/)|(?:[\w-]+\.)+[a-z]{2,}(?!\w))"
)
_LOCAL = late_pattern(r"localhost$|127\.|\[?::1|0\.0\.0\.0")


def find_outside_host(text: str) -> str:
    """Return the first address in a text that is not on this machine, or an empty string."""
    hosts = (match[1] or match[2] for match in _URL.finditer(text))
    return next((host for host in hosts if not _LOCAL.match(host)), "")


def reaches_out(command: str) -> bool:
    """Return whether a command may have reached the network."""
    if find_outside_host(command):
        return True
    return not _URL.search(command) and (
        _CODE.search(command) is not None or any(map(_fetches_elsewhere, _parts(read(command), command)))
    )


def find_fetched_packages(command: str) -> set[str] | None:
    """Return the packages that a command fetches by name, in lower case.

    The set is empty if an installer or a pull has only options and files. None if the command fetches
    something else that it names itself.
    """
    packages: set[str] = set()
    for part in _fetching(command):
        verb = VERBS.search(part.line)
        arguments = part.line[verb.end() :].split() if verb else []
        package_names = {
            re.split(r"(?<=.)[=<>~!\[@]", word.lower())[0]
            for before, word in pairwise(["", *arguments])
            if word[0] not in "-./~" and not (before.startswith("-") and re.search(r"[./]", word))
        }
        if verb is None or (package_names and not verb["installer"]):
            return None
        packages |= package_names
    return None if find_outside_host(command) else packages


def find_fetch_sources(command: str) -> list[str]:
    """Return the addresses and repositories that a command fetches from, in lower case.

    The list is empty if it may also fetch from elsewhere.
    """
    fetching = [part.bare.lower() for part in _fetching(command)]
    if not all(map(_SOURCE.search, fetching)) or _CODE.search(command):
        return []
    addresses = (match[0] for match in _SOURCE.finditer(command.lower()) if find_outside_host(match[0]))
    return [*_SOURCE.findall("\n".join(fetching)), *addresses]


def find_left_names(command: str) -> list[str]:
    """Return the words of a fetching command that may name the files it leaves.

    Programs before the first fetch don't count, but the values of variables do. The operands of an
    installer are packages, whose files are where installed code is. Words inside a script are not
    operands.
    """
    parts = _parts(read(command), command)
    first = next((at for at, part in enumerate(parts) if _reaches(part)), -1)
    fetching_parts = [
        part for part in parts[first:] if not ((verb := VERBS.search(part.line)) and verb["installer"])
    ]
    words = (word for part in fetching_parts for word in re.split(r"\s*<<-?\s*\S+|[\s<>|;&()`]+", part.bare))
    filled = (word for part in fetching_parts for word in part.words if not re.search(r"\s", word))
    return list(dict.fromkeys(file_names(word for word in (*words, *filled) if word.strip("_"))))


def _parts(reading: CommandReading, command: str) -> list[ReadPart]:
    """Return a command's parts. If the syntax is doubtful, the whole text counts as one more part."""
    whole_part = ReadPart(tuple(command.split()), command, reading.bare, command)
    return [*reading.parts, *([whole_part] if reading.is_doubtful and whole_part.words else [])]


def _fetching(command: str) -> list[ReadPart]:
    return [part for part in _parts(read(command), command) if _reaches(part)]


def _reaches(part: ReadPart) -> bool:
    return bool(find_outside_host(part.bare)) or (not _URL.search(part.bare) and _fetches_elsewhere(part))


def _fetches_elsewhere(part: ReadPart) -> bool:
    """Return whether a program fetches from elsewhere, or passes another language code that names such a
    program."""
    code = re.sub(r"[\s\"',\[\]]+", " ", part.code)
    return "brings" in program(part.name).kinds or any(map(VERBS.search, filter(None, (part.line, code))))
