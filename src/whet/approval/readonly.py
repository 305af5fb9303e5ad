"""Which simple commands only read: programs, and the options with which they stay harmless.

A command that is not listed here is asked about; so this table may be short but never wrong. Options are
judged by exclusion only for programs whose whole set of options was looked through (GNU coreutils 9,
findutils 4, ripgrep 14, git 2.4x, util-linux 2.40).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from whet.approval.shell_words import Word
from whet.approval.wrappers import name_of

# No option and no operand of these writes, runs or connects.
_ALWAYS = frozenset(
    (
        *(
            "ls",
            "cat",
            "head",
            "tail",
            "grep",
            "egrep",
            "fgrep",
            "wc",
            "stat",
            "df",
            "pwd",
            "echo",
            "which",
        ),
        *("whereis", "type", "basename", "dirname", "realpath", "readlink", "md5sum", "sha1sum", "sha224sum"),
        *(
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "b2sum",
            "cksum",
            "sum",
            "cmp",
            "comm",
            "join",
            "paste",
            "cut",
        ),
        *(
            "tr",
            "fold",
            "fmt",
            "nl",
            "tac",
            "rev",
            "expand",
            "unexpand",
            "column",
            "od",
            "hexdump",
            "strings",
        ),
        *("uname", "whoami", "id", "groups", "uptime", "nproc", "free", "ps", "lscpu", "lsblk", "tty"),
        *(
            "locale",
            "getconf",
            "seq",
            "sleep",
            "true",
            "false",
            ":",
            "numfmt",
            "expr",
            "pgrep",
            "cal",
        ),
        *("printenv", "users", "who", "w", "lsmod", "lsusb", "lspci", "cd", "pushd", "popd", "dirs"),
        *("exit", "return", "break", "continue", "shift", "shasum", "md5", "vmstat", "iostat"),
    )
)
_VERSIONED = frozenset(
    (
        *(
            "python",
            "python3",
            "node",
            "npm",
            "npx",
            "yarn",
            "pnpm",
            "git",
            "go",
            "cargo",
            "rustc",
            "gcc",
            "g++",
        ),
        *(
            "clang",
            "make",
            "cmake",
            "java",
            "javac",
            "ruby",
            "gem",
            "docker",
            "pip",
            "pip3",
            "uv",
            "poetry",
            "rg",
        ),
        *(
            "perl",
            "php",
            "bash",
            "zsh",
            "tsc",
            "deno",
            "bun",
            "pytest",
            "ruff",
            "mypy",
            "pyright",
            "kubectl",
            "gh",
        ),
        *(
            "terraform",
            "helm",
            "aws",
            "gcloud",
            "psql",
            "sqlite3",
            "mysql",
            "jq",
            "curl",
            "wget",
            "ssh",
            "ffmpeg",
        ),
    )
)


def only_reads(words: Sequence[Word]) -> bool:
    """Whether a simple command (program first) is certain to change nothing and to contact nobody."""
    program = words[0]
    if program.dynamic or program.glob or ("/" in program.text and not _standard(program.text)):
        return False
    name = name_of(program)
    if name in _ALWAYS:
        return True
    texts = [word.text for word in words[1:]]
    if name in _VERSIONED and texts in (["--version"], ["-V"], ["-version"], ["version"]):
        return name != "npm" or texts != ["version"]
    check = _CHECKED.get(name)
    if check is None:
        return False
    return not any(w.may_be_flag for w in before_dashes(words[1:])) and check(words[1:])


def _standard(path: str) -> bool:
    return re.fullmatch(r"(/usr(/local)?)?/s?bin/[^/]+", path) is not None


def before_dashes(words: Sequence[Word]) -> Sequence[Word]:
    """Give the words that can be options: those before `--`."""
    for at, word in enumerate(words):
        if word.text == "--":
            return words[:at]
    return words


def has_option(words: Sequence[Word], short: str, *long: str) -> bool:
    """Whether an option is there: a letter of `short`, also in a cluster, or a long one, abbreviated too."""
    for word in before_dashes(words):
        text = word.text
        if text.startswith("--"):
            name = text[2:].split("=", 1)[0]
            if name and any(option.startswith(name) for option in long):
                return True
        elif len(text) > 1 and text[0] == "-" and any(c in short for c in text[1:]):
            return True
    return False


def operands(words: Sequence[Word], valued: str = "") -> list[Word]:
    """Give the words that are no options, nor the values of the short options in `valued`."""
    found: list[Word] = []
    at, is_open = 0, True
    while at < len(words):
        text = words[at].text
        if is_open and text == "--":
            is_open = False
        elif is_open and len(text) > 1 and text[0] == "-":
            if len(text) == 2 and text[1] in valued:
                at += 1
        else:
            found.append(words[at])
        at += 1
    return found


def _without(short: str, *long: str) -> Callable[[Sequence[Word]], bool]:
    return lambda words: not has_option(words, short, *long)


def _find(words: Sequence[Word]) -> bool:
    risky = re.compile(r"-(exec|execdir|ok|okdir|delete|fls|fprint\w*|files0-from)")
    return not any(risky.fullmatch(word.text) for word in words)


_SED_ADDRESS = r"(\d+|\$|/(?:\\.|[^/;\\])*/I?)"
_SED_SCRIPT = re.compile(
    rf"\s*{_SED_ADDRESS}?(,\s*(\+?\d+|{_SED_ADDRESS}))?\s*!?\s*(p|d|q\d*|=|N|n|G"
    r"|s(?P<d>[/|,#])(\\.|(?!(?P=d))[^\n\\])*(?P=d)(\\.|(?!(?P=d))[^\n\\])*(?P=d)[gpI0-9]*)?\s*"
)


def _sed(words: Sequence[Word]) -> bool:
    """Printing, deleting and plain substitution; no -i, no script file, no w, r or e."""
    scripts: list[Word] = []
    rest: list[Word] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "-e" and at + 1 < len(words):
            at += 1
            scripts.append(words[at])
        elif not text.startswith("-") or text == "-":
            rest.append(words[at])
        elif not re.fullmatch(r"-[nErzu]+|--quiet|--regexp-extended", text):
            return False
        at += 1
    scripts = scripts or rest[:1]
    return bool(scripts) and all(not s.dynamic and sed_is_plain(s.text) for s in scripts)


def sed_is_plain(script: str) -> bool:
    """Whether a sed script only prints, deletes or substitutes."""
    if len(script) > 1_000:
        return False
    if _SED_SCRIPT.fullmatch(script):
        return True
    return all(_SED_SCRIPT.fullmatch(part.strip("{} ")) for part in re.split(r"[;\n]", script))


def _awk(words: Sequence[Word]) -> bool:
    """A program given on the line that has no system, no getline, no pipe and no redirection."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if not re.match(r"-[Fv]", words[at].text):
            return False
        at += 2 if len(words[at].text) == 2 else 1
    if at >= len(words) or words[at].dynamic or len(words[at].text) > 2_000:
        return False
    # Looked for in strings too: a quote in a regular expression hides where a string begins.
    return not re.search(r"system|getline|@|\||ENVIRON|print.*>", words[at].text, re.DOTALL)


def _uniq(words: Sequence[Word]) -> bool:
    return len(operands(words, "fsw")) < 2


def _test(words: Sequence[Word]) -> bool:
    """`-v` looks a variable up by its name, whose subscript bash runs."""
    texts = [word.text for word in words]
    return all(re.fullmatch(r"\w+", b) for a, b in pairwise(texts) if a in ("-v", "-R"))


def _xxd(words: Sequence[Word]) -> bool:
    return not has_option(words, "r", "revert") and len(operands(words, "clgso")) < 2


def _none(words: Sequence[Word]) -> bool:
    return not words


def _env(words: Sequence[Word]) -> bool:
    return not operands(words, "u")


def _command(words: Sequence[Word]) -> bool:
    return bool(words) and re.fullmatch(r"-[vV]", words[0].text) is not None


def _date(words: Sequence[Word]) -> bool:
    """Every option but -s, and no operand that would set the clock."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text in ("-d", "-r", "--date", "--reference"):
            at += 1
        elif not re.match(r"\+|-[uR]+$|-u?I[a-z]*$|-d.|--(date=|utc|iso-8601|rfc)", text):
            return False
        at += 1
    return True


def _printf(words: Sequence[Word]) -> bool:
    return bool(words) and not words[0].text.startswith("-v")


def _read(words: Sequence[Word]) -> bool:
    names = operands(words, "dnNptui")
    return not has_option(words, "ea") and all(
        re.fullmatch(r"[a-z_]\w*", w.text) and not w.dynamic for w in names
    )


def _jq(words: Sequence[Word]) -> bool:
    return not has_option(words, "", "rawfile", "slurpfile", "from-file") and not any(
        "env" in w.text.lower() for w in words
    )


def _tree(words: Sequence[Word]) -> bool:
    return not has_option(words, "oRT", "fromfile", "fromtabfile")


def _declare(words: Sequence[Word]) -> bool:
    return not words or all(w.text in ("-p", "-f", "-F", "-x") for w in words)


def _set(words: Sequence[Word]) -> bool:
    return all(re.fullmatch(r"[-+][eufx]+|[-+]o|pipefail|errexit|nounset", w.text) for w in words)


def _git_branch(words: Sequence[Word]) -> bool:
    changing = (
        "delete",
        "move",
        "copy",
        "force",
        "edit-description",
        "set-upstream-to",
        "unset-upstream",
        "track",
    )
    if has_option(words, "dDmMcCfut", *changing, "create-reflog"):
        return False
    return not operands(words) or words[0].text in ("--contains", "--merged", "--no-merged", "--list", "-l")


def _git_tag(words: Sequence[Word]) -> bool:
    listing = ("-l", "--list", "-n", "--contains", "--points-at", "--merged")
    return not words or (
        words[0].text in listing and not has_option(words, "dfasumF", "delete", "force", "sign", "file")
    )


def _first(*verbs: str) -> Callable[[Sequence[Word]], bool]:
    return lambda words: bool(words) and words[0].text in verbs


def _lists(verbs: Sequence[str], short: str, *long: str) -> Callable[[Sequence[Word]], bool]:
    return lambda words: bool(words) and words[0].text in verbs and not has_option(words, short, *long)


def _none_or_first(*verbs: str) -> Callable[[Sequence[Word]], bool]:
    return lambda words: not words or words[0].text in verbs


_GIT_LISTS: dict[str, Callable[[Sequence[Word]], bool]] = {
    "branch": _git_branch,
    "tag": _git_tag,
    "remote": lambda w: [x.text for x in w] in ([], ["-v"], ["--verbose"]) or w[0].text == "get-url",
    "stash": _first("list", "show"),
    "config": _first("--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"),
    "reflog": lambda w: not w or w[0].text not in ("expire", "delete", "drop", "write"),
    "worktree": _first("list"),
    "submodule": _none_or_first("status", "summary"),
    "notes": _none_or_first("list", "show"),
    "bisect": _first("log"),
    "symbolic-ref": lambda w: len(operands(w)) == 1 and not has_option(w, "dm", "delete"),
    "grep": _without("O", "open-files-in-pager"),
}
_GIT_READS = frozenset(
    (
        *(
            "status",
            "log",
            "diff",
            "show",
            "blame",
            "shortlog",
            "rev-parse",
            "rev-list",
            "ls-files",
            "ls-tree",
        ),
        *(
            "describe",
            "cat-file",
            "merge-base",
            "name-rev",
            "for-each-ref",
            "count-objects",
            "diff-tree",
            "cherry",
        ),
        *(
            "check-ignore",
            "whatchanged",
            "show-ref",
            "show-branch",
            "diff-index",
            "diff-files",
            "version",
            "annotate",
        ),
        *("check-attr", "verify-commit", "range-diff"),
    )
)


def _git(words: Sequence[Word]) -> bool:
    at = 0
    while at < len(words) and words[at].text in (
        "--no-pager",
        "-P",
        "-C",
        "--no-optional-locks",
        "--literal-pathspecs",
    ):
        at += 2 if words[at].text == "-C" else 1
    if at >= len(words):
        return False
    verb, rest = words[at].text, words[at + 1 :]
    if words[at].dynamic or has_option(rest, "", "output", "ext-diff", "exec", "upload-pack"):
        return False
    check = _GIT_LISTS.get(verb)
    return check(rest) if check is not None else verb in _GIT_READS


_CHECKED: dict[str, Callable[[Sequence[Word]], bool]] = {
    "find": _find,
    "gfind": _find,
    "fd": _without("xXl", "exec", "exec-batch", "list-details"),
    "fdfind": _without("xXl", "exec", "exec-batch", "list-details"),
    "rg": _without("", "pre", "hostname-bin", "search-zip"),
    "ag": _without("", "pager"),
    "sort": _without("oT", "output", "compress-program", "temporary-directory"),
    "uniq": _uniq,
    "diff": _without("", "output"),
    "file": _without("Cmf", "compile", "magic-file", "files-from"),
    "du": _without("", "files0-from"),
    "test": _test,
    "[": _test,
    "wait": _without("p"),
    "xxd": _xxd,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "date": _date,
    "printf": _printf,
    "hostname": _none,
    "env": _env,
    "command": _command,
    "hash": _none,
    "alias": _none,
    "history": _none,
    "read": _read,
    "jq": _jq,
    "tree": _tree,
    "declare": _declare,
    "export": _declare,
    "set": _set,
    "git": _git,
    "pip": _lists(("list", "show", "freeze", "check"), "ou", "log", "outdated", "uptodate"),
    "pip3": _lists(("list", "show", "freeze", "check"), "ou", "log", "outdated", "uptodate"),
    "go": _first("version"),
    "jobs": _without("x"),
    "arch": _none,
    "docker": _first("ps", "images", "version"),
    "brew": _first("list"),
    "apt": _lists(("list", "show"), "oc", "option", "config-file"),
    "dpkg": lambda words: bool(words) and words[0].text in ("-l", "-L", "-s", "-S", "--list"),
    "npm": _first("ls", "list"),
    "systemctl": _lists(("status", "is-active", "is-enabled"), "HM", "host", "machine"),
    "kill": lambda words: [w.text for w in words] == ["-l"],
    "ulimit": lambda words: [w.text for w in words] in ([], ["-a"], ["-n"]),
    "umask": _none,
    "less": lambda words: bool(words) and all(not w.text.startswith(("-", "+")) for w in words),
    "more": lambda words: bool(words) and all(not w.text.startswith(("-", "+")) for w in words),
}
