"""Whether a shell command brings in text from the network, and which files it leaves behind.

A rough reading of the command line on purpose: it decides how far a result is trusted, never what may run,
so a doubtful command counts as from the network. Loopback addresses are local.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

_PROGRAMS_TEXT = """
curl wget gh glab hub http https xh aria2c axel lynx w3m links elinks yt-dlp youtube-dl scp sftp ftp lftp
telnet nc ncat netcat socat dig nslookup whois aws gcloud az kubectl oc helm heroku flyctl vercel netlify
npx bunx uvx pipx s3cmd rclone mail mutt fetch httpie grpcurl websocat newsboat rsstail
"""
_PROGRAMS = frozenset(_PROGRAMS_TEXT.split())
_VERBS = re.compile(
    r"(?:git\s+(?:-\S+\s+(?:\S+\s+)?)*(?:clone|fetch|pull|push|ls-remote|submodule|remote\s+update"
    r"|archive\s+--remote)"
    r"|svn\s+(?:co|checkout|up|update|export)|hg\s+(?:clone|pull)"
    r"|(?:pip3?|npm|pnpm|yarn|uv|poetry|cargo|go|gem|brew|apt|apt-get|dnf|yum|apk|bundle|composer"
    r"|conda|mamba|bun|deno)"
    r"\s+(?:\S+\s+)?(?:install|add|sync|ci|get|i|update|upgrade|download|fetch|search|show|view|info"
    r"|create|dlx|exec)"
    r"|(?:docker|podman)\s+(?:pull|search|login)|rsync\s+.*\S+:\S+)\b"
)
_CODE = re.compile(
    r"urllib|requests\.|httpx|aiohttp|http\.client|fetch\(|axios|net/http|open-uri|LWP|socket\."
    r"|/dev/(?:tcp|udp)/|XMLHttp"
)
_URL = re.compile(r"\b(?:https?|ftp|ssh|git)://([^\s/\"'<>]+)", re.IGNORECASE)
_LOCAL = re.compile(
    r"(?:[^@]*@)?(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0)(?::\d+)?$", re.IGNORECASE
)
_SPLIT = re.compile(r"\|\||&&|[;|&\n(`]|\$\(")
_WRAPPERS_TEXT = """
sudo doas env time nohup nice ionice timeout stdbuf xargs command exec then do else ! if while
"""
_WRAPPERS = frozenset(_WRAPPERS_TEXT.split())
_SPEAKERS_TEXT = """
echo printf : true false
"""
_SPEAKERS = frozenset(_SPEAKERS_TEXT.split())
_FILTERS_TEXT = """
base64 base32 xxd od openssl rev tr sed awk cat tee head tail sort uniq cut fold tac nl gunzip zcat gzip
xz bzip2 python python3 perl ruby node jq iconv uudecode column paste grep
"""
_FILTERS = frozenset(_FILTERS_TEXT.split())
_REDIRECT = re.compile(r"(?:^|\s)\d?>{1,2}\s*([^\s;|&<>]+)")
_TO = ("--output=", "--output-document=", "--directory=", "--directory-prefix=", "--output-dir=")
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n.*?^\s*\1\s*$", re.DOTALL | re.MULTILINE)


def is_network(command: str) -> bool:
    """Whether the command may have fetched text from elsewhere."""
    hosts = [match[1] for match in _URL.finditer(command)]
    if any(not _LOCAL.match(host) for host in hosts):
        return not _only_spoken(command)
    bare = _unquoted(command)
    if _VERBS.search(bare) or _CODE.search(command):
        return True
    named = [words[0] for part in _parts(command) if (words := _words(part))]
    if any(name.rpartition("/")[2] in _PROGRAMS for name in named):
        return not hosts  # with an address, it is a loopback one
    return bool(re.search(r"(?:^|[\s;|&(])(?:curl|wget)\s", bare)) and not hosts


def outputs(command: str) -> list[str]:
    """Give the files and folders that a command writes to, as far as its text tells."""
    found = [target for target in _REDIRECT.findall(command) if not target.startswith(("/dev/", "&"))]
    for part in _parts(command):
        words = _words(part)
        if words:
            found += _written(words[0].rpartition("/")[2], words[1:])
    return [name.strip("\"'") for name in found if name.strip("\"'.")]


def mentions(text: str, path: str) -> bool:
    """Whether a text names a path, or the last part of it, as a path."""
    name = path.rstrip("/").rpartition("/")[2]
    return bool(name) and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def meant(command: str) -> str:
    """Give what a command does without what it only says: no comments, echoed or here-document text."""
    text = _HERE.sub(" ", command)
    parts: list[str] = []
    for part in re.split(r"(?:\|\||&&|[;\n])", text):
        part = re.sub(r"(?:^|\s)#.*", "", part)
        words = _words(part)
        if words and words[0] not in _SPEAKERS:
            parts.append(part)
    return "\n".join(parts)


def only_repeats(command: str) -> bool:
    """Whether all that a command shows was written in the command itself: said, decoded, filtered."""
    shown = False
    for line in re.split(r"\|\||&&|[;\n]", _HERE.sub(" echo ", command)):
        stages = [words for stage in line.split("|") if (words := _words(stage))]
        if not stages:
            continue
        first, *rest = stages
        if first[0] not in _SPEAKERS and "<<<" not in line and not _decodes(line):
            return False
        if any(stage[0].rpartition("/")[2] not in _FILTERS for stage in rest):
            return False
        shown = True
    return shown


def _decodes(line: str) -> bool:
    return (
        re.search(r"\s-[ce]\s.*(?:b64decode|fromhex|unhexlify|atob|rot13|chr\(|\[::-1\]|decode\()", line)
        is not None
    )


def _written(program: str, words: Sequence[str]) -> list[str]:
    plain = [word for word in words if not word.startswith("-")]
    found = [
        _after(words, flag)
        for flag in ("-o", "--output", "--output-document", "-P", "-d", "-C", "--directory")
    ]
    found += [word.partition("=")[2] for word in words if word.startswith(_TO)]
    if program == "curl":
        short = (word for word in words if re.fullmatch(r"-[a-zA-Z]+o", word))
        found += [_after(words, flag) for flag in short]
    if program == "tee":
        found += plain
    elif program in ("cp", "mv", "ln", "install", "rsync", "scp"):
        found += plain[-1:]
    elif program == "git" and "clone" in plain:
        operands = plain[plain.index("clone") + 1 :]
        found.append(operands[1] if len(operands) > 1 else _base(operands[0]) if operands else "")
    elif program == "wget" or (
        program == "curl" and any(re.fullmatch(r"-\w*O\w*|--remote-name", w) for w in words)
    ):
        found += [_base(word) for word in plain if "/" in word]
    return [name for name in found if name]


def _after(words: Sequence[str], flag: str) -> str:
    return next((after for word, after in itertools.pairwise(words) if word == flag), "")


def _base(address: str) -> str:
    return address.partition("?")[0].rstrip("/").rpartition("/")[2].removesuffix(".git")


def _parts(command: str) -> list[str]:
    return [part for part in _SPLIT.split(command) if part.strip()]


def _words(part: str) -> list[str]:
    try:
        words = shlex.split(part, comments=True)
    except ValueError:
        words = part.split()
    while words and (words[0] in _WRAPPERS or re.fullmatch(r"\w+=.*|-\S+|\d+[smh]?", words[0])):
        words = words[1:]
    return words


def _unquoted(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", " ", command)


def _only_spoken(command: str) -> bool:
    """Whether every part of the command only says something."""
    return all(
        not (words := _words(part)) or words[0] in _SPEAKERS for part in _parts(command)
    ) and not re.search(r"\$\(|`", command)
