"""Find the commands that other commands run: `env`, `sudo`, `xargs`, `sh -c`, `find -exec` and similar.

`unwrap` returns, for one simple command, the inner commands as words and the inner shell text as text.
Only names and options are considered; whether the inner command is risky is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from whet.late import late_pattern
from whet.shell.options import has_any
from whet.shell.programs import (
    UNKNOWN,
    ProgramOptions,
    ProgramWords,
    Wrapping,
    by_name,
    git_verb,
    program,
    read_git_verbs,
)
from whet.shell.tools import find_tool, name_tool
from whet.shell.words import Word, literal, name_of, unknown

_OPTION = late_pattern(r"-[^-]|--.")
_CANT_TELL = "can't tell what it runs"


class WrappedCommand(msgspec.Struct):
    """The commands inside a command.

    `vanishes`: the wrapper itself needs no rule. `fed`: its shell runs its input. `doubts` are the reasons
    why it is uncertain what runs. `assigns` are variables set for the inner command. `maybe` are the
    commands that run if an unknown option takes the next word as its value.
    """

    commands: list[list[Word]] = msgspec.field(default_factory=list[list[Word]])
    maybe: list[list[Word]] = msgspec.field(default_factory=list[list[Word]])
    texts: list[Word] = msgspec.field(default_factory=list[Word])
    assigns: list[tuple[str, Word]] = msgspec.field(default_factory=list[tuple[str, Word]])
    doubts: list[str] = msgspec.field(default_factory=list[str])
    vanishes: bool = False
    fed: bool = False
    elsewhere: bool = False
    in_container: bool = False


def unwrap(words: Sequence[Word]) -> WrappedCommand | None:
    """Return the commands inside `words` (program first), or None if it is not a wrapper."""
    name = name_of(words[0])
    facts = program(name)
    if name.startswith(("python", "pypy")) and [w.text for w in words[1:2]] == ["-m"]:
        return WrappedCommand(maybe=[list(words[2:])] if words[2:] else [])
    if "shell" in facts.kinds:
        return _shell(words)
    if inside := _unwrap_tool(words):
        return inside
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(words)
    if facts.wraps is not None:
        return _prefix(words, facts.wraps)
    if facts == UNKNOWN:
        return _unknown_program(name, words)
    if "run-verbs" not in facts.kinds:
        return None
    if len(words) > 2 and words[1].text in _RUN_VERBS:
        return _prefix(words[1:], _AFTER_RUN)
    if words[1:] and words[1].text.startswith("-"):
        at = next((at for at, word in enumerate(words) if word.text in _RUN_VERBS), len(words))
        return WrappedCommand(maybe=[list(words[at + 1 :])] if words[at + 1 :] else [])
    return None


def _unknown_program(name: str, words: Sequence[Word]) -> WrappedCommand | None:
    """Return what a program that no table describes may run: its arguments (`perhaps sh -c TEXT`), or for one
    of git's own programs (`git-push`) the command of git."""
    starts = [at for at, word in enumerate(words) if at and is_shell(word) and words[at + 1 :]][:1]
    starts += [at + 1 for at, word in enumerate(words) if word.text == "--" and words[at + 1 :]][:1]
    maybe = [list(words[at:]) for at in starts]
    if name.startswith("git-") and name[4:] in read_git_verbs():
        maybe.append([literal("git"), literal(name[4:]), *words[1:]])
    return WrappedCommand(maybe=maybe) if maybe else None


def is_shell(word: Word) -> bool:
    """Return whether a word names a shell and no variable or pattern can change that."""
    return not word.dynamic and "shell" in program(name_of(word)).kinds


_RUN_VERBS = frozenset(("run", "exec", "x", "--"))
_AFTER_RUN = Wrapping(values="pwECf", stays=True)
_LONG_WITH_VALUE = ProgramWords(
    "signal kill-after adjustment output error input class classdata format unset chdir argv0"
    " user env workdir arg-file delimiter max-args max-procs max-chars process-slot-var jobs joblog"
    " interval equexit shotsdir package from spec with with-requirements python pip-args index-url workspace"
)
_MAX_GUESSES = 6


def _takes_next(option: str, short: str) -> bool:
    """Return whether an option takes the next word: `-x`, also as the last of a cluster, or a known long
    option."""
    if option.startswith("--"):
        return option[2:] in _LONG_WITH_VALUE
    position = next((at for at, letter in enumerate(option) if letter in short), None)
    return position == len(option) - 1 if position else False


def _prefix(words: Sequence[Word], takes: Wrapping) -> WrappedCommand:
    """Skip options, their values and operands. The remaining words are the command.

    A wrapper with a long option that is not among its reviewed `flags` needs a rule of its own.
    """
    inside = WrappedCommand(vanishes=not takes.stays)
    at, unsure, values = 1, 0, list[Word]()
    while at < len(words):
        word = words[at]
        if word.may_be_flag and word.dynamic:
            inside.doubts.append(_CANT_TELL)
            return inside
        if word.text == "--":
            at += 1
            break
        if not _OPTION.match(word.text):
            if not re.match(r"[^=-][^=]*=", word.text) or name_of(words[0]) not in ("sudo", "doas", "env"):
                break
            name, _, value = word.text.partition("=")
            inside.assigns.append((name, literal(value)))
        else:
            is_flag = has_any([word], takes.flags)
            inside.vanishes = inside.vanishes and (is_flag or not word.text.startswith("--"))
            if _takes_next(word.text, takes.values):
                at += 1
                values += words[at : at + 1]
            elif not is_flag and not re.search(f"=|^-[^-]*[{takes.values}=]", word.text):
                unsure += 1
        at += 1
    values += words[at : at + takes.operands]
    if any(value.loose or value.glob for value in values):  # it may become several words, such as a program
        inside.doubts.append(_CANT_TELL)
    _add(inside, words[at + takes.operands :])
    _guess(inside, words[at + takes.operands + 1 :], unsure)
    return inside


def _guess(inside: WrappedCommand, words: Sequence[Word], unsure: int) -> None:
    """Record what runs if some of the preceding `unsure` options take a value."""
    inside.maybe.extend(list(words[at:]) for at in range(min(unsure, _MAX_GUESSES, len(words))))


def _add(inside: WrappedCommand, words: Sequence[Word]) -> None:
    if words:
        inside.commands.append(list(words))


_SHELL = Wrapping(values="oO", stays=True)


def _shell(words: Sequence[Word]) -> WrappedCommand:
    """Unwrap sh, bash and similar: `-c TEXT`, a script, or the input."""
    at = next((at for at, word in enumerate(words) if at and word.text in ("-", "--")), len(words))
    inside = _prefix(words[:at], _SHELL)
    operands = [*(inside.commands[0] if inside.commands else ()), *words[at + 1 :]]
    options = [word.text for word in words[1 : len(words) - len(operands)]]
    inside.commands, inside.maybe = [], []
    if {"--version", "--help"} & set(options) or inside.doubts:
        return inside
    if any(re.match(r"--?(rcfile|init-file|(init-)?command)", text) for text in options):
        inside.doubts.append("it names a start-up file or a command in a way of its own")
        return inside
    short = "".join(text for text in options if re.fullmatch(r"-[^-]\S*", text) and text not in _SHELL_WORDS)
    inside.fed = "s" in short or options[-1:] == ["-"] or not operands
    if "c" in short:
        inside.texts, inside.vanishes, inside.fed = operands[:1], True, False
    elif operands and not inside.fed:
        if operands[0].runs:
            inside.doubts.append("it runs a script made at run time")
        inside.fed = operands[0].text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
    return inside


_SHELL_WORDS = ("-norc", "-noprofile", "-login", "-posix", "-restricted")


_ENV = Wrapping(values="uCa", flags=ProgramOptions("-iv0 --ignore-environment --debug --null"))


def _env(words: Sequence[Word]) -> WrappedCommand:
    inside = _prefix(words, _ENV)
    options = _own_words(inside, words)
    if any(re.match(r"-[iv0]*S|--s", word.text) for word in options):
        inside.doubts.append("env -S makes a command out of text")
    inside.elsewhere = any(re.match(r"-[iv0]*C|--c", word.text) for word in options)
    # Without a variable of its environment the command may be another one: git runs hooks.
    changes = any(word.text.startswith("-") for word in options)
    inside.vanishes = bool(inside.commands) and not changes
    return inside


def _own_words(inside: WrappedCommand, words: Sequence[Word]) -> Sequence[Word]:
    """Return a wrapper's own words: those before the inner command."""
    return words[1 : len(words) - len(inside.commands[0])] if inside.commands else words[1:]


def _command(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap `command`. `command -v name` only looks up a name."""
    if len(words) > 1 and re.fullmatch(r"-[pvV]*[vV][pvV]*", words[1].text):
        return None
    return _prefix(words, Wrapping())


_XARGS = Wrapping(
    values="IJnNPLRSsdaE",
    flags=ProgramOptions(
        "-0rtpxoile --eof --replace --max-lines --open-tty --interactive --no-run-if-empty --verbose"
        " --show-limits --exit --null"
    ),
)


def _xargs(words: Sequence[Word]) -> WrappedCommand:
    """Unwrap xargs. A word that its input replaces is known only at run time."""
    inside = _prefix(words, _XARGS)
    options = _own_words(inside, words)
    marks: set[str] = set()
    inside.commands = inside.commands or [[literal("echo")]]
    for word, following in zip(options, [*options[1:], literal("{}")], strict=False):
        match = re.match(r"-[^-IJnNPLRSsdaEle]*([IJi])(.*)|--r[^=]*=?(.*)", word.text, re.DOTALL)
        if match:
            marks |= {match[2] or match[3] or following.text, "{}", "%"}
    for command in (*inside.commands, *inside.maybe):
        if marks:
            command[:] = [unknown(w.text) if any(m in w.text for m in marks) else w for w in command]
        else:
            if _may_be_steered(command):
                inside.doubts.append(f"{command[0].text} may be given options that run or delete something")
            command.append(unknown("{}"))
    return inside


def _may_be_steered(words: Sequence[Word]) -> bool:
    """Return whether an option among the words that xargs adds makes a program run or delete something."""
    name = name_of(words[0])
    verb = git_verb(words[1].text) if name == "git" and words[1:] else None
    return name in ("find", "gfind") or (verb is not None and verb.risky is not None)


def _parallel(words: Sequence[Word]) -> WrappedCommand:
    """Unwrap GNU parallel: the command up to `:::`, its arguments known only at run time."""
    end = next((at for at, word in enumerate(words) if word.text.startswith(":::")), len(words))
    inside = _prefix(words[:end], Wrapping(values="jnSIa", stays=True))
    if not inside.commands:
        inside.doubts.append("parallel runs what it reads")
    for command in (*inside.commands, *inside.maybe):
        command.append(unknown("{}"))
    return inside


def _find(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap find: each -exec, -execdir, -ok, -okdir up to `;` or `+`. `{}` is a path below the start
    folder."""
    inside = WrappedCommand()
    at = 1
    while at < len(words):
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            command = [unknown("{}", "./") if w.text == "{}" else w for w in words[at + 1 : end]]
            if any("{}" in w.text and not w.dynamic for w in command):
                inside.doubts.append("find puts file names into a command's text")
            _add(inside, command)
            at = end
        at += 1
    return inside if inside.commands else None


def _fd(words: Sequence[Word]) -> WrappedCommand | None:
    for at, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            inside = WrappedCommand()
            _add(inside, [*words[at + 1 :], unknown("{}", "./")])
            return inside
        match = re.match(r"(?:-[a-zA-Z0-9]*?[xX]|--exec(?:-batch)?=)(.*)", word.text, re.DOTALL)
        if match:
            return WrappedCommand(
                maybe=[[*map(literal, filter(None, [match[1]])), *words[at + 1 :], unknown("{}", "./")]]
            )
    return None


def _unwrap_joined_text(words: Sequence[Word]) -> WrappedCommand:
    """Unwrap eval and watch: their arguments joined are shell text."""
    arguments = [word for word in words[1:] if word.text != "--"]
    if name_of(words[0]) == "watch":
        arguments = next(iter(_prefix(words, _WATCH).commands), list[Word]())
    return WrappedCommand(texts=join_words(arguments))


_WATCH = Wrapping(values="nqs")


def join_words(words: Sequence[Word]) -> list[Word]:
    """Join words by spaces into one text word, or return an empty list if there are none."""
    if not words:
        return []
    text = " ".join(w.text for w in words)
    return [unknown(text)] if any(w.dynamic or w.glob for w in words) else [literal(text)]


def _trap(words: Sequence[Word]) -> WrappedCommand | None:
    arguments = [w for w in words[1:] if w.text not in ("--", "-p", "-l")]
    return (
        WrappedCommand(texts=arguments[:1])
        if len(arguments) > 1 and arguments[0].text not in ("", "-")
        else None
    )


def _unwrap_text_option(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap script, su and npx: the text after -c, which may be in a cluster or attached to its option."""
    for at, word in enumerate(words[1:], 1):
        match = re.match(r"(?:-[a-zA-Z]*?c|--(?:com?m?a?n?d?|call)(?:=|$))(.*)", word.text, re.DOTALL)
        if match is None:
            continue
        if match[1]:
            return WrappedCommand(texts=[unknown(match[1]) if word.dynamic else literal(match[1])])
        return WrappedCommand(texts=list(words[at + 1 : at + 2]))
    return None


_TOOL = Wrapping(
    values="pwi",
    flags=ProgramOptions(
        "-yqv --yes --no --no-install --bun --quiet --silent --ignore-existing --verbose --offline"
    ),
)


def _unwrap_tool(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap `npx TOOL`, `uv tool run TOOL`, `python3 manage.py` and similar. It is a guess, so that a rule
    for the runner alone still covers the line."""
    at = find_tool(words)
    if at is None or (name_of(words[0]) == "npx" and _unwrap_text_option(words) is not None):
        return None
    inside = _prefix(words[at:], _TOOL)
    tools = [name_tool(command) for command in (*inside.commands, *inside.maybe)]
    doubts = inside.doubts or ["the tool's name is made at run time"] * any(w[0].dynamic for w in tools[:1])
    return WrappedCommand(maybe=tools, doubts=doubts) if tools or doubts else None


def _package_runner(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap `npm exec -c TEXT` and `npm exec -- COMMAND`."""
    at = next((at for at, word in enumerate(words) if word.text in ("exec", "x", "dlx")), 0)
    if not at:
        return None
    inside = _unwrap_text_option(words[at:]) or _prefix(words[at:], _AFTER_RUN)
    inside.commands = [name_tool(command) for command in inside.commands]
    return inside


_EXEC = Wrapping(
    values="uewnc",
    operands=1,
    stays=True,
    flags=ProgramOptions("-itd --interactive --tty --detach --privileged --stdin"),
)


def _container(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap `docker exec NAME command`: the command runs in the container, but on real data."""
    at = next((at for at, word in enumerate(words) if word.text == "exec"), 0)
    if not at:
        return None
    inside = _prefix(words[at:], _EXEC)
    inside.commands = [[w for w in command if w.text != "--"] for command in inside.commands]
    inside.elsewhere = inside.in_container = True
    return inside


def _git(words: Sequence[Word]) -> WrappedCommand | None:
    """Unwrap `git bisect run CMD`, `git submodule foreach CMD` and `git rebase --exec TEXT`."""
    texts = [w.text for w in words]
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        if first in texts and second in texts[texts.index(first) :]:
            arguments = [
                w for w in words[texts.index(second) + 1 :] if w.text not in ("--recursive", "--quiet")
            ]
            return (
                WrappedCommand(texts=join_words(arguments))
                if second == "foreach"
                else WrappedCommand(commands=[arguments] if arguments else [])
            )
    if "rebase" in texts:
        for at, text in enumerate(texts):
            if text in ("-x", "--exec") and at + 1 < len(texts):
                return WrappedCommand(texts=[words[at + 1]])
            if (match := re.match(r"-[a-wyz]*x|--exec=", text)) and match.end() < len(text):
                return WrappedCommand(texts=[words[at].after(match.end())])
    return None


_HANDLERS: dict[str, Callable[[Sequence[Word]], WrappedCommand | None]] = by_name(
    {
        "env": _env,
        "command": _command,
        "xargs gxargs": _xargs,
        "parallel": _parallel,
        "find gfind": _find,
        "fd fdfind": _fd,
        "eval watch": _unwrap_joined_text,
        "trap": _trap,
        "su runuser script npx expect": _unwrap_text_option,
        "npm pnpm yarn": _package_runner,
        "docker podman docker-compose": _container,
        "git": _git,
    }
)
