"""Remove private data from texts: secrets, the home folder's name, e-mail addresses.

`log.mask` masks loaded secrets and words in the form of vendors' keys. This module adds secrets that their
context reveals (`password: ...`, `--token ...`, headers, query parameters), tokens that look random, and
data that identifies a person. Learned memory, skills, warm templates and every text that goes into another
session's prompt pass through here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from whet.late import late_pattern
from whet.log import MASK, mask

EMAIL = "[EMAIL]"
_Change = Callable[[re.Match[str]], str]
_Needs = tuple[tuple[str, ...], ...]

_NAMES = (
    r"(?:api[_-]?key|apikey|secret|secret[_-]?key|token|passw(?:or)?d|passphrase|passwd|pwd|pass"
    r"|credentials?|auth[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|private[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|shared[_-]?key|client[_-]?secret|authorization|x-api-key|dsn|webhook[_-]?url)"
)
_VALUE = r"[^\s\"'`,;&)}\]]"
# NAME=value as the shell and .env write it: an upper-case name is sufficient.
_SHELL = late_pattern(
    r"\b((?:[A-Z][A-Z0-9]*_)*(?:API_?KEY|KEY|SECRET|TOKEN|AUTH|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|DSN)"
    r"(?:_[A-Z0-9]+)?=)([\"']?)(" + _VALUE + r"{4,})"
)
# "name": "value" and name = 'value': a quoted value after a name that suggests a secret.
_QUOTED = late_pattern(
    rf"(?i)({_NAMES}[\"']?\s{{0,99}}(?:[:=]|=>|:=)\s*)([bru]?[\"'])((?:(?!\2)[^\n\\]|\\.){{4,}})(?=\2)"
)
# name: value as YAML, INI, connection strings and properties write it.
_PLAIN = late_pattern(rf"(?i)({_NAMES}\s{{0,99}}[:=]\s*)({_VALUE}{{6,}})")
# One search for each run of letters and dashes: `*+` never goes back.
_OPTION = late_pattern(rf"(?i)(?<![\w-])(\w*+)(-[\w-]*{_NAMES}(?:\s+|=))([\"']?)({_VALUE}{{4,}})")
_QUERY = late_pattern(
    r"(?i)([?&](?:[\w-]*(?:token|key|secret|password|passwd|pwd|signature|sig|auth|credential)|code|sid)=)"
    r"([^&\s\"'#]{4,})"
)
_HEADER = late_pattern(
    r"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:basic|bearer|token|digest|apikey|negotiate)\s+"
    r"|(?:set-)?cookie[\"']?:\s*[\"']?)([^\r\n\"']{4,})"
)


def _gap_pattern(program: str) -> str:
    """Return a pattern for the text between a program's name and its option.

    The text does not contain the name again, so that the search takes linear time.
    """
    return rf"(?:(?!\b{program}\b)[^\n|;])*?"


_MYSQL, _MONGO = r"(?:mysql|mysqldump|mariadb)", r"(?:mongo\w*|login)"
_ZIP, _LDAP = r"(?:sqlcmd|zip|unzip)", r"ldap\w+"
_LOGIN = late_pattern(
    r"(\b(?:machine|login)\s+\S+\s+(?:login\s+\S+\s+)?password\s+)(\S{4,})"
    rf"|(\bcurl\b{_gap_pattern('curl')}\s(?:-u|--user)[ =]?[\"']?[^\s:\"']+:)([^\s\"']{{3,}})"
    r"|(\bsshpass\s+-p\s*[\"']?)([^\s\"']{3,})"
    rf"|(\b{_MYSQL}\b{_gap_pattern(_MYSQL)}\s-p)([^\s-][^\s]{{2,}})"
    rf"|(\b(?:redis-cli\b{_gap_pattern('redis-cli')}\s-a|{_LDAP}\b{_gap_pattern(_LDAP)}\s-w|{_MONGO}\b{_gap_pattern(_MONGO)}\s-p"
    rf"|{_ZIP}\b{_gap_pattern(_ZIP)}\s-P)\s+[\"']?)([^\s\"'-][^\s\"']{{2,}})"
)
# A value after a short option, and a word with a vendor's key prefix: recognised by their shape.
_SHORT = late_pattern(r"((?<=\s)-[A-Za-z]\s+[\"']?)([^\s\"'|;&<>()]{8,})")
_PREFIXED = late_pattern(r"(?<![\w/.-])([a-z]{2,8}(?:[-_][a-z]{1,8})?[-_])([A-Za-z0-9_-]{16,})(?![\w/.-])")
_CREDENTIAL_URL = late_pattern(r"(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)")
_HASH = late_pattern(r"\$(?:2[aby]|argon2(?:id|i|d)|6|5|1|apr1|y|scrypt)\$[./A-Za-z0-9$=,+]{16,}")
_DOTTED = late_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_NAME = late_pattern(r"[a-z]*(?:[A-Z][a-z]+)+")
_WORD = late_pattern(r"[A-Za-z_]+")
_TOKEN = late_pattern(r"[A-Za-z0-9+/_=-]{20,}")
_RUN = late_pattern(r"[a-z0-9]{24,}")
_HEX = late_pattern(r"[0-9a-fA-F-]+")
_INTEGRITY = late_pattern(r"(?:sha(?:1|256|384|512)-|sha256:)$")
_EMAIL = late_pattern(
    r"(?<![\w.+/:-])(?!git@)[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})*\.[A-Za-z]{2,24}(?![\w:])"
)
_HOMES = late_pattern(
    r"(?<![\w.~-])(?:/(?:home|Users)/[\w.@+-]+|/root|[A-Za-z]:\\Users\\[\w.@+ -]+?(?=\\|$))"
    r"(?=[/\\\s:\"',;)\]}]|$)"
)
_HOME_NAMES = ("/home/", "/Users/", "/root", ":\\Users\\")
_NO_SECRET = late_pattern(
    r"(?i)(?:none|null|nil|true|false|str|string|bytes|int|bool|any|optional|required|undefined|example|changeme"
    r"|redacted|hidden|secret|password|token|your[\w-]*|x{3,}|\*{3,}|\.{3,}|<[^>]*>?|\{+[^}]*\}*|\$[\w({].*|%\w.*"
    r"|env[.:\[(].*|os\.environ.*|process\.env.*|\[?redacted\]?|\[email\]?)"
)
_PROSE_SECRET = late_pattern(
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key"
    r"|auth[ _-]?key|credential|pin)\b"
    r"(?:\s{1,20}(?:is|for\s{1,20}\S{1,99}\s{1,20}is))?\s{0,20}(?:[:=]\s{0,20}"
    r"|\s(?:is\s{1,20})?)[\"'`]?((?=[^\s\"'`]{0,200}[\d!@#$%^&*])[^\s\"'`,;]{6,})",
    re.IGNORECASE,
)
_CARD = late_pattern(r"(?<!\d)(?<!\d\.)(?:\d[ -]?){13,19}(?!\d)")


def redact(text: str, *, home: str = "") -> str:
    """Return `text` with secrets as [REDACTED], e-mail addresses as [EMAIL], home folders as ~.

    `home` is a home folder that is not below /home, /Users or /root. A second call changes nothing.
    """
    text = mask_secrets(text)
    text = _EMAIL.sub(EMAIL, text) if "@" in text else text
    if len(home) > 1 and home in text:
        text = re.sub(re.escape(home.rstrip("/")) + r"(?![\w.-])", "~", text)
    return _HOMES.sub("~", text) if any(name in text for name in _HOME_NAMES) else text


def mask_secrets(text: str) -> str:
    """Return `text` with every recognised secret as [REDACTED], and nothing else changed."""
    text = mask(text)
    # A pattern that can't match is not tried, because compiling all of them takes 15 ms. All are tried for
    # a text beyond ASCII: (?i) matches s by \u017f, too.
    lower = text.lower() if text.isascii() else None
    for pattern, change, needs in _RULES:
        if lower is None or all(any(part in lower for part in parts) for parts in needs):
            text = pattern.sub(change, text)
    return text


def describe_secret(text: str) -> str:
    """Return the kind of secret in a text, including one described in prose, or ""."""
    if holds_secret(text):
        return "a key or a password"
    if _PROSE_SECRET.search(text):
        return "what looks like a password or a key"
    if any(_is_card(match[0]) for match in _CARD.finditer(text)):
        return "what looks like a card number"
    return ""


def holds_secret(text: str) -> bool:
    """Return whether `mask_secrets` would change the text."""
    return mask_secrets(text) != text


def _mask_shell(match: re.Match[str]) -> str:
    return match[0] if _is_no_secret(match[3]) else f"{match[1]}{match[2]}{MASK}"


def _mask_quoted_value(match: re.Match[str]) -> str:
    value = match[3]
    if _is_no_secret(value) or (" " in value and not re.search(r"\d", value)):
        return match[0]
    return f"{match[1]}{match[2]}{MASK}"


def _mask_plain(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    start = match.start()
    whole_name = re.sub(r".*[^\w.-]", "", match.string[max(0, start - 40) : start], flags=re.DOTALL) + name
    if _is_no_secret(value) or re.search(r"[(\[{<|]", value) or _DOTTED.fullmatch(value):
        return match[0]
    is_password = re.search(r"(?i)passw(?:or)?d|passphrase|passwd|pwd", whole_name) is not None
    if value.isalpha() or _WORD.fullmatch(value):
        # A word alone may be a type or another variable. After `password: ` or `password=` it is a password.
        is_value = is_password and value.isalpha() and re.search(r":\s|\w=$", name)
        return f"{name}{MASK}" if is_value and not _NAME.fullmatch(value) else match[0]
    is_mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    return f"{name}{MASK}" if is_mixed or is_password or re.search(r"[^\w.:/-]", value) else match[0]


def _mask_option(match: re.Match[str]) -> str:
    value = match[4]
    if value.startswith("-") or _is_no_secret(value):
        return match[0]
    if not re.search(r"passw|pwd|pass", match[2], re.IGNORECASE) and not re.search(r"\d", value):
        return match[0]
    return f"{match[1]}{match[2]}{match[3]}{MASK}"


def _mask_query(match: re.Match[str]) -> str:
    return match[0] if _is_no_secret(match[2]) or match[2].isalpha() else f"{match[1]}{MASK}"


def _mask_header(match: re.Match[str]) -> str:
    return match[0] if _is_no_secret(match[2]) else f"{match[1]}{MASK}"


def _mask_login(match: re.Match[str]) -> str:
    head = next(match[i] for i in (1, 3, 5, 7, 9) if match[i])
    return f"{head}{MASK}"


def _mask_short_option(match: re.Match[str]) -> str:
    value = match[2]
    if not is_random_mix(value) or re.search(r"[/.=:,*\\{}\[\]^]", value) or _is_no_secret(value):
        return match[0]
    return f"{match[1]}{MASK}"


def _mask_prefixed_key(match: re.Match[str]) -> str:
    body = match[2]
    run = max((part for part in re.split(r"[-_]", body)), key=len)
    return MASK if len(run) >= 16 and is_random_mix(run) and not _HEX.fullmatch(run) else match[0]


def is_random_mix(word: str) -> bool:
    """Return whether letters and digits alternate more often than in a readable word."""
    letters = [char for char in word if char.isalnum()]
    digits = sum(char.isdigit() for char in letters)
    if digits < 2 or len(letters) - digits < 4 or _HEX.fullmatch(word):
        return False
    kinds = [0 if char.isdigit() else 1 if char.isupper() else 2 for char in letters]
    return sum(a != b for a, b in itertools.pairwise(kinds)) >= 0.3 * (len(kinds) - 1)


def _mask_random(match: re.Match[str]) -> str:
    token = match[0]
    before = match.string[max(0, match.start() - 8) : match.start()]
    if _INTEGRITY.search(before + token[:8]) or re.match(r"sha(?:1|256|384|512)-", token):
        return token
    return MASK if looks_random(token) else token


def looks_random(token: str) -> bool:
    """Return whether a word looks like a key: long, with frequent changes between kinds of characters.

    Hexadecimal digests, UUIDs, paths and names in camelCase do not look so.
    """
    if len(token) < 20 or _HEX.fullmatch(token):
        return False
    letters = [char for char in token if char.isalnum()]
    if len(letters) < 18:
        return False
    kinds = [0 if char.isdigit() else 1 if char.isupper() else 2 for char in letters]
    changes = sum(a != b for a, b in itertools.pairwise(kinds)) / (len(kinds) - 1)
    counts = [kinds.count(kind) for kind in range(3)]
    if min(counts[1], counts[2]) >= 3 and counts[0] >= 2:
        return changes >= 0.4
    # Lower case and digits alone count only without separators: file names and versions have them.
    run = max((len(part) for part in _RUN.findall(token)), default=0)
    return run >= 24 and counts[0] >= 5 and counts[2] >= 8 and changes >= 0.3


def _is_no_secret(value: str) -> bool:
    return MASK in value or _NO_SECRET.fullmatch(value.strip()) is not None


_NAME_PARTS = ("key", "secret", "token", "pass", "pwd", "credential", "authorization", "dsn", "webhook")
_LOGIN_PARTS = (
    *("password", "curl", "sshpass", "mysql", "mariadb", "redis-cli"),
    *("ldap", "mongo", "login", "sqlcmd", "zip"),
)
_RULES: tuple[tuple[re.Pattern[str], _Change, _Needs], ...] = (
    (_CREDENTIAL_URL, lambda match: MASK, (("://",),)),
    (_HASH, lambda match: MASK, (("$",),)),
    (_HEADER, _mask_header, (("authorization", "cookie"),)),
    (_SHELL, _mask_shell, (("=",),)),
    (_QUOTED, _mask_quoted_value, (_NAME_PARTS, (":", "="), ("'", '"'))),
    (_PLAIN, _mask_plain, (_NAME_PARTS, (":", "="))),
    (_OPTION, _mask_option, (_NAME_PARTS, ("-",))),
    (_QUERY, _mask_query, (("?", "&"), ("=",))),
    (_LOGIN, _mask_login, (_LOGIN_PARTS,)),
    (_SHORT, _mask_short_option, (("-",),)),
    (_PREFIXED, _mask_prefixed_key, (("-", "_"),)),
    (_TOKEN, _mask_random, ()),
)


def _is_card(run: str) -> bool:
    digits = [int(c) for c in run if c.isdigit()]
    sizes = [len(group) for group in re.split(r"[ -]+", run.strip(" -"))]
    is_cut_oddly = len(set(sizes)) > 1 and min(sizes[1:-1], default=4) < 3  # 0001172661-25-004777
    if len(digits) < 13 or len(set(digits)) < 2 or is_cut_oddly:
        return False
    doubled = [d if i % 2 else (d * 2 - 9 if d > 4 else d * 2) for i, d in enumerate(reversed(digits), 1)]
    return sum(doubled) % 10 == 0
