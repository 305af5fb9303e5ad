"""Commands that run other commands: what runs inside `env`, `sudo`, `xargs`, `sh -c`, `find -exec` and kin.

`unwrap` gives, for one simple command, the commands inside as words and the shell text inside as text.
Only names and options are looked at; whether the inner command is risky is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.approval.shell_words import Word, literal, unknown

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"))
_OPTION = re.compile(r"-[^-]|--.")


@dataclass(slots=True)
class Inside:
    """What a command runs. `vanishes`: the wrapper itself needs no rule. `fed`: its shell reads its input.

    `doubts`: why it can't be told what runs. `assigns`: variables that are set for the inner command.
    """

    commands: list[list[Word]] = field(default_factory=list[list[Word]])
    texts: list[Word] = field(default_factory=list[Word])
    assigns: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    doubts: list[str] = field(default_factory=list[str])
    vanishes: bool = False
    fed: bool = False
    elsewhere: bool = False
    in_container: bool = False


def name_of(word: Word) -> str:
    """Give a program's bare name."""
    return word.text.rsplit("/", 1)[-1]


def unwrap(words: Sequence[Word]) -> Inside | None:
    """Say what `words` (program first) runs inside, or None where it is no wrapper."""
    name = name_of(words[0])
    if name in SHELLS:
        return _shell(words)
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(words)
    takes = _PREFIXES.get(name)
    if takes is not None:
        return _prefix(words, takes, vanishes=True)
    takes = _RUNNERS.get(name)
    if takes is not None:
        return _prefix(words, takes, vanishes=False)
    verbs = _RUN_VERBS.get(name)
    if verbs is not None and len(words) > 2 and words[1].text in verbs:
        return _prefix(words[1:], _VALUES_AFTER_RUN, vanishes=False)
    return None


# name: (short options that take a value, number of operands before the command)
_PREFIXES: dict[str, tuple[str, int]] = {
    "nice": ("n", 0),
    "nohup": ("", 0),
    "timeout": ("ks", 1),
    "gtimeout": ("ks", 1),
    "time": ("fo", 0),
    "stdbuf": ("ioe", 0),
    "ionice": ("cnpPu", 0),
    "setsid": ("", 0),
    "builtin": ("", 0),
    "unbuffer": ("", 0),
    "caffeinate": ("tw", 0),
    "coproc": ("", 0),
    "noglob": ("", 0),
    "nocorrect": ("", 0),
    "exec": ("a", 0),
}
_RUNNERS: dict[str, tuple[str, int]] = {
    "sudo": ("ugpCDRTUrth", 0),
    "doas": ("uC", 0),
    "pkexec": ("u", 0),
    "chroot": ("", 1),
    "nsenter": ("tSG", 0),
    "unshare": ("", 0),
    "strace": ("eopsuaEXPbIO", 0),
    "ltrace": ("eopsuaEXPbIO", 0),
    "flock": ("wE", 1),
    "taskset": ("", 1),
    "chrt": ("TPD", 1),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "proot": ("rbw", 0),
    "fakeroot": ("lsu", 0),
    "firejail": ("", 0),
    "systemd-run": ("upEMH", 0),
    "dbus-run-session": ("", 0),
    "xvfb-run": ("nsef", 0),
    "catchsegv": ("", 0),
    "ts-node": ("", 99),
    "entr": ("", 0),
    "env-cmd": ("f", 0),
    "dotenv": ("fe", 0),
}
_VALUES_AFTER_RUN = ("pwECf", 0)
_RUN_VERBS: dict[str, frozenset[str]] = {
    name: frozenset(("run", "exec", "x", "--"))
    for name in (
        "uv",
        "poetry",
        "pipenv",
        "pdm",
        "hatch",
        "rye",
        "bundle",
        "pnpm",
        "mise",
        "asdf",
        "rtx",
        "direnv",
        "nix",
    )
}


def _prefix(words: Sequence[Word], takes: tuple[str, int], *, vanishes: bool) -> Inside:
    """Skip options, their values and operands; the rest is the command."""
    short, operands = takes
    inside = Inside(vanishes=vanishes)
    at = 1
    while at < len(words):
        word = words[at]
        if word.may_be_flag and word.dynamic:
            inside.doubts.append("can't tell what it runs")
            return inside
        if word.text == "--":
            at += 1
            break
        if not _OPTION.match(word.text):
            if not re.fullmatch(r"\w+=.*", word.text, re.DOTALL) or name_of(words[0]) not in ("sudo", "doas"):
                break
            name, _, value = word.text.partition("=")
            inside.assigns.append((name, literal(value)))
        elif len(word.text) == 2 and word.text[1] in short:
            at += 1
        at += 1
    _add(inside, words[at + operands :])
    return inside


def _add(inside: Inside, words: Sequence[Word]) -> None:
    if words:
        inside.commands.append(list(words))


def _shell(words: Sequence[Word]) -> Inside:
    """sh, bash and kin: `-c TEXT`, a script, or whatever comes in."""
    inside = Inside()
    at = 1
    while at < len(words):
        text = words[at].text
        if words[at].may_be_flag and words[at].dynamic:
            inside.doubts.append("can't tell what it runs")
            return inside
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", text):
            rest = [w for w in words[at + 1 :] if not re.fullmatch(r"[-+][a-zA-Z]+", w.text)]
            inside.texts.extend(rest[:1])
            inside.vanishes = True
            return inside
        if text in ("--rcfile", "--init-file"):
            inside.doubts.append("it names a start-up file")
            return inside
        if text in ("--version", "--help"):
            return inside
        if text in ("-s", "-") or re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", text):
            inside.fed = True
            return inside
        if text in ("-O", "+O", "-o", "+o"):
            at += 1
        elif not text.startswith(("-", "+")):
            if words[at].runs:
                inside.doubts.append("it runs a script made at run time")
            inside.fed = text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
            return inside
        at += 1
    inside.fed = True
    return inside


def _env(words: Sequence[Word]) -> Inside:
    inside = Inside(vanishes=True)
    at = 1
    while at < len(words):
        word = words[at]
        text = word.text
        if text.startswith("-S") or text.startswith("--split-string"):
            inside.doubts.append("env -S makes a command out of text")
            return inside
        if word.dynamic and not re.match(r"\w+=", word.prefix):
            break
        if re.match(r"[^=-][^=]*=", text):
            name, _, value = text.partition("=")
            inside.assigns.append((name, literal(value)))
        elif text in ("-u", "-C", "--unset", "--chdir", "--argv0", "-a"):
            inside.elsewhere = inside.elsewhere or text in ("-C", "--chdir")
            at += 1
        elif text.startswith("--chdir="):
            inside.elsewhere = True
        elif not text.startswith("-"):
            break
        at += 1
    _add(inside, words[at:])
    if not inside.commands:
        inside.vanishes = False
    return inside


def _command(words: Sequence[Word]) -> Inside | None:
    """`command -v name` only looks a name up."""
    if len(words) > 1 and re.fullmatch(r"-[pvV]*[vV][pvV]*", words[1].text):
        return None
    return _prefix(words, ("", 0), vanishes=True)


def _xargs(words: Sequence[Word]) -> Inside:
    inside = Inside(vanishes=True)
    at, replaces = 1, False
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        replaces = replaces or text.startswith(("-I", "-i", "-J", "--replace"))
        if re.fullmatch(
            r"-[IJnNPLRSsdaE]|--(max-args|max-procs|max-lines|max-chars|delimiter|arg-file|eof)", text
        ):
            at += 1
        at += 1
    command = list(words[at:]) or [literal("echo")]
    inside.commands.append(command if replaces else [*command, unknown("{}")])
    if replaces:
        inside.commands[0] = [unknown(w.text) if "{}" in w.text or w.text == "%" else w for w in command]
    return inside


def _parallel(words: Sequence[Word]) -> Inside:
    """GNU parallel: the command up to `:::`, its arguments known only at run time."""
    inside = Inside()
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in ("-j", "--jobs", "-a", "--arg-file", "-n", "-S", "--joblog", "-I") else 1
    end = at
    while end < len(words) and not words[end].text.startswith(":::"):
        end += 1
    if end == at:
        inside.doubts.append("parallel runs what it reads")
    else:
        _add(inside, [*words[at:end], unknown("{}")])
    return inside


def _find(words: Sequence[Word]) -> Inside | None:
    """Each -exec, -execdir, -ok, -okdir up to `;` or `+`; `{}` is a path below the start folder."""
    inside = Inside()
    at = 1
    while at < len(words):
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            found = [unknown("{}", "./") if w.text == "{}" else w for w in words[at + 1 : end]]
            if any("{}" in w.text and not w.dynamic for w in found):
                inside.doubts.append("find puts file names into a command's text")
            _add(inside, found)
            at = end
        at += 1
    return inside if inside.commands else None


def _fd(words: Sequence[Word]) -> Inside | None:
    for at, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            inside = Inside()
            _add(inside, [*words[at + 1 :], unknown("{}", "./")])
            return inside
    return None


def _text_of_rest(words: Sequence[Word]) -> Inside:
    """eval and watch: their arguments joined are shell text."""
    inside = Inside()
    rest = [w for w in words[1:] if w.text != "--"]
    if name_of(words[0]) == "watch":
        while rest and rest[0].text.startswith("-"):
            rest = rest[2 if rest[0].text in ("-n", "--interval") else 1 :]
    inside.texts.extend(joined(rest))
    return inside


def joined(words: Sequence[Word]) -> list[Word]:
    """Join words by spaces into one word of text; none where there is none."""
    if not words:
        return []
    text = " ".join(w.text for w in words)
    return [unknown(text, text[:1])] if any(w.dynamic or w.glob for w in words) else [literal(text)]


def _trap(words: Sequence[Word]) -> Inside | None:
    rest = [w for w in words[1:] if w.text not in ("--", "-p", "-l")]
    return Inside(texts=rest[:1]) if len(rest) > 1 and rest[0].text not in ("", "-") else None


def _su(words: Sequence[Word]) -> Inside:
    for at, word in enumerate(words):
        if word.text in ("-c", "--command") and at + 1 < len(words):
            return Inside(texts=[words[at + 1]])
    return Inside()


def _container(words: Sequence[Word]) -> Inside | None:
    """`docker exec NAME command`: the command runs in the container, yet on real data."""
    texts = [w.text for w in words]
    if "exec" not in texts:
        return None
    at = texts.index("exec") + 1
    while at < len(words) and texts[at].startswith("-"):
        at += 2 if texts[at] in ("-u", "-e", "-w", "--user", "--env", "--workdir", "-n", "-c") else 1
    inside = Inside(elsewhere=True, in_container=True)
    _add(inside, [w for w in words[at + 1 :] if w.text != "--"])
    return inside


def _git(words: Sequence[Word]) -> Inside | None:
    """`git bisect run CMD`, `git submodule foreach CMD` and `git rebase --exec TEXT`."""
    texts = [w.text for w in words]
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        if first in texts and second in texts[texts.index(first) :]:
            rest = [w for w in words[texts.index(second) + 1 :] if w.text not in ("--recursive", "--quiet")]
            return (
                Inside(texts=joined(rest)) if second == "foreach" else Inside(commands=[rest] if rest else [])
            )
    if "rebase" in texts:
        for at, text in enumerate(texts[:-1]):
            if text in ("-x", "--exec"):
                return Inside(texts=[words[at + 1]])
    return None


def _script_tool(words: Sequence[Word]) -> Inside | None:
    for at, word in enumerate(words[:-1]):
        if word.text in ("-c", "--command"):
            return Inside(texts=[words[at + 1]])
    return None


_HANDLERS: dict[str, Callable[[Sequence[Word]], Inside | None]] = {
    "env": _env,
    "command": _command,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "eval": _text_of_rest,
    "watch": _text_of_rest,
    "trap": _trap,
    "su": _su,
    "runuser": _su,
    "script": _script_tool,
    "docker": _container,
    "podman": _container,
    "docker-compose": _container,
    "git": _git,
}
