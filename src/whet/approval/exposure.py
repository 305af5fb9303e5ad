"""Judge a command as a whole: secrets it shows, addresses it reaches, downloads it runs.

A word that is known only at run time may equal any other word of the text: `cat $(echo .env)`, `xargs cat
<<< .env`. So words are collected over the whole command, and judgements that no single word allows are
made from all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from whet.approval.addresses import find_forbidden_address
from whet.approval.danger_reach import downloaded_paths
from whet.approval.paths import absolute_path, within
from whet.approval.risk import CommandSetting, Finding, Piece, RiskScope, Shown
from whet.approval.secrets import find_secret_in_code, find_secret_in_word, is_secret, leads_into_process
from whet.approval.variables import judge_variable
from whet.late import late_pattern
from whet.shell.options import has_any, operands
from whet.shell.programs import ProgramOptions, by_name, git_verb, program, read_programs
from whet.shell.sed import parse_sed_call
from whet.shell.spellings import GIT_VALUED
from whet.shell.state import Invocation, ShellScript
from whet.shell.words import Word, fill_own_texts, fill_variables, in_line, literal, name_of, unknown

_VARIABLE = late_pattern(r"\$\w+|\$\{[^{}]*\}")
_SILENT = frozenset(("reads", "names-only"))
_SHOWS = frozenset(("shows-files", "pattern-then-files"))
_LISTED = "shows the lines of the file that it takes names from"
"""In the table of programs: what its line says of a program that takes names from a file, and prints them."""
_PRINTED_ESCAPE = late_pattern(r"\\(?:x([0-9a-fA-F]{1,2})|(0?[0-7]{1,3})|[abcefnrtv])")
_READS_ARGUMENTS = frozenset(("xargs", "gxargs", "parallel"))


class Exposure:
    """What the texts of one command show and reach, collected text by text.

    `secret`: it shows keys or passwords. `network`: it connects to other machines.
    """

    def __init__(self, scope: RiskScope) -> None:
        self.secret: bool = False
        self.network: bool = False
        self.downloads: set[str] = set(scope.downloads)
        self._scope = scope
        self._words: list[Word] = []
        self._values: dict[str, str] = {}
        self._shows_unknown = self._fetches = False
        self._written: list[str] = []
        self._doubtful_texts: list[str] = []

    def take(self, script: ShellScript) -> None:
        """Collect the words of a text before its commands are judged."""
        self._words.extend(script.all_words)
        steers = any(judge_variable(name, word)[0] is not None for name, word in script.loops)
        if script.doubts or steers:  # what it runs is not all known, so it counts as code
            self._doubtful_texts.append(script.source)
        for name, word in (
            *script.assignments,
            *(pair for i in script.invocations for pair in i.assignments),
        ):
            self._words.append(word)
            self._values[name] = word.text
        self._fetches = any(
            "network" in program(i.words[0].text).kinds for i in script.invocations if i.words
        )
        for redirect in script.redirects:
            if self._fetches and ">" in redirect.operator:
                self._download(redirect.target.text, redirect.folders)

    def _download(self, path: str, folders: Sequence[str]) -> None:
        self.downloads.update(filter(None, (absolute_path(path, folder) for folder in folders or ("/",))))

    def judge_shown_files(
        self, name: str, words: Sequence[Word], setting: CommandSetting
    ) -> Iterator[Finding]:
        """Judge which of the named files a simple command may show."""
        shown_words = find_shown_words(name, words)
        candidates = shown_words or ()
        if name in ("cd", "pushd"):  # what follows may name the files without their folder
            candidates = [word for word in words if leads_into_process(word.text)]
        secret_path = next(filter(None, (find_secret_in_word(word, setting) for word in candidates)), "")
        secret_path = secret_path or self._find_filled(candidates, setting)
        if (
            not secret_path
            and shown_words is not None
            and setting.cwd is not None
            and not operands(candidates)
        ):
            secret_path = setting.cwd if is_secret(setting.cwd, self._scope) else ""
        if secret_path:
            self.secret = True
            yield "dangerous", Shown(f"reads a file that holds secrets: {secret_path}")
        self._shows_unknown = self._shows_unknown or any(word.dynamic for word in candidates)

    def _find_filled(self, words: Sequence[Word], setting: CommandSetting) -> str:
        """Return the first word that names secrets if its variables are set as in the command, or not at
        all: `.e${x}nv`, `${x:-.env}`."""
        for word in words:
            if word.dynamic and "$" in word.text:
                text = fill_own_texts(fill_variables(word.text, self._values))
                path = absolute_path(_VARIABLE.sub("", text), setting.cwd)
                if path is not None and is_secret(path, self._scope):
                    return word.plain
        return ""

    def judge_code(self, text: str, setting: CommandSetting) -> Iterator[Finding]:
        """Judge code given to an interpreter."""
        secret_name = find_secret_in_code(text, setting)
        if secret_name:
            self.secret = True
            yield "dangerous", Shown(f"its code names a file that holds secrets: {secret_name}")
        if reason := find_forbidden_address([text], self._scope):
            yield "dangerous", reason

    def judge_value(self, piece: Piece, word: Word) -> Iterator[Finding]:
        """Judge a variable's value. One that makes programs run something is code: `PS4='$(cat .env)'`."""
        if piece.level == "dangerous":
            yield from self.judge_code(word.text, CommandSetting(self._scope.workspace, self._scope))

    def shows_computed_name(self, name: str, invocation: Invocation) -> bool:
        """Return whether a command shows a file whose name another program computes. Names from a program
        that only lists files do not count."""
        shows = not program(name).kinds & _SILENT or program(name).kinds & _SHOWS
        sources = list(invocation.inner) if any(word.runs for word in invocation.words) else []
        named_by = sources if any(w.runs and not w.text.startswith("<(") for w in invocation.words) else []
        if program(name).kinds & _SHOWS and any(word.text == "{}" for word in invocation.words):
            named_by = [*named_by, *invocation.piped_from]
            sources.extend(invocation.piped_from)
        is_joined = any(_is_joined(word) for word in invocation.words)
        prints = [source for source in sources if source.words and name_of(source.words[0]) in _PRINTS]
        makes = (
            is_joined or len(prints) > 1 or any(map(_makes_text, sources)) or any(map(_shows_file, named_by))
        )
        return bool(shows) and makes

    def judge_download(self, name: str, words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
        """Judge a command that runs downloaded files, and record the files it downloads."""
        facts, arguments = program(_stem(name)), words[1:]
        scripts: list[Word] = [words[0]] if "/" in words[0].text else []
        if (
            facts.kinds & {"shell"}
            or facts.code is not None
            or name in ("source", ".", "chmod", "install", "pip")
        ):
            scripts.extend(word for word in arguments if not word.text.startswith("-"))
        for word in scripts:
            full = absolute_path(word.text, setting.cwd)
            if full is not None and any(within(full, folder) for folder in self.downloads):
                yield "dangerous", f"runs a download that nobody has read: {word.plain}"
        folders = (setting.cwd,) if setting.cwd is not None else ()
        if "network" in facts.kinds or name == "git":
            for path in downloaded_paths(name, arguments):
                self._download(path, folders)
        elif name in ("tee", "cp", "mv", "tar", "unzip") and (
            self._fetches
            or any(
                absolute_path(word.text, folder) in self.downloads for word in arguments for folder in folders
            )
        ):
            for word in operands(arguments):
                self._download(word.text, folders)

    def judge_addresses(self, name: str, words: Sequence[Word]) -> Iterator[Finding]:
        """Judge the addresses in a command that may connect."""
        kinds = program(name).kinds
        connects = not kinds & (_SILENT | _SHOWS) or "network" in kinds
        if connects and (reason := find_forbidden_address((word.text for word in words), self._scope)):
            yield "dangerous", reason

    def judge_whole(self) -> Iterator[Finding]:
        """Judge what depends on the whole command."""
        for text in self._doubtful_texts:
            yield from self.judge_code(text, CommandSetting(self._scope.workspace, self._scope))
        if self._shows_unknown and any(self._is_secret(word) for word in self._words):
            self.secret = True
            yield "dangerous", Shown("may read a file that holds secrets")
        if self.network:
            reason = find_forbidden_address(
                (fill_variables(word.text, self._values) for word in self._words), self._scope
            )
            if reason:
                yield "dangerous", reason
        if self.secret and self.network:
            yield "dangerous", "may send keys or passwords over the network"

    def _is_secret(self, word: Word) -> bool:
        r"""Return whether a word names secrets, also as printf prints its escapes: `printf '.env\0'`."""
        filled = fill_variables(word.text, self._values)
        folder = CommandSetting(self._scope.workspace, self._scope)
        texts = dict.fromkeys((filled, *_PRINTED_ESCAPE.sub(_print_escape, filled).split("\0")))
        words = [literal(text) if text != word.text else word for text in texts if text]
        return any(find_secret_in_word(possible, folder) for possible in words)


def _print_escape(match: re.Match[str]) -> str:
    """Return the character of an escape of printf, or NUL for one that ends a word."""
    code = int(match[1], 16) if match[1] else int(match[2], 8) if match[2] else 0
    return chr(code)


def _stem(name: str) -> str:
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name)


_PRINTS = ("echo", "printf")


def _is_joined(word: Word) -> bool:
    """Return whether a command's output is only a part of a name: `$(echo .e)nv`. Of a path it is one."""
    return word.runs and (word.prefix[-1:] not in ("", "/", "=") or not re.search(r"[)`](?:/|\Z)", word.text))


def _shows_file(source: Invocation) -> bool:
    """Return whether a command's output is the content of a file, which may hold any name."""
    name = name_of(source.words[0]) if source.words else ""
    is_reader = bool(program(name).kinds & _SHOWS) and name not in _LISTS
    return is_reader and not source.piped_from and bool(operands(source.words[1:]))


def _makes_text(source: Invocation) -> bool:
    """Return whether a command's output may be a file name that the text doesn't contain."""
    name = os.path.basename(source.words[0].text) if source.words else ""
    facts = program(name) if name in read_programs() else program(_stem(name))
    if name in _LISTS and not source.piped_from:
        return _lists_hidden_files(source)
    if name in _PRINTS:
        marks = "\\%" if name == "printf" else "\\"
        return any(mark in word.text for word in source.words[1:] for mark in marks)
    return "makes-text" in facts.kinds or facts.code is not None or "shell" in facts.kinds


_NO_HIDDEN_NAME = r"\*?(\.(py|[jt]sx?|md|txt|go|rs|c|h|cpp|java|rb|php|html?|css|sh|sql)|[\w-]+\.\w+)"
"""A pattern of find for files of source and text, or a whole name without a dot at its beginning."""
_SHOWS_HIDDEN: dict[str, ProgramOptions] = by_name(
    {
        "ls": ProgramOptions("-aAf --all --almost-all"),
        "rg ripgrep": ProgramOptions("-.u --hidden --unrestricted"),
        "fd fdfind": ProgramOptions("-Hu --hidden --unrestricted"),
        "grep egrep fgrep": ProgramOptions("-rR --recursive --dereference-recursive"),
        "tree du": ProgramOptions("-a --all"),
        "git": ProgramOptions("-o --others"),
    }
)
_LISTS = frozenset(("find", "gfind", *_SHOWS_HIDDEN))


def _lists_hidden_files(source: Invocation) -> bool:
    """Return whether a program that lists files may print names that begin with a dot, such as `.env`."""
    hides = _SHOWS_HIDDEN.get(name_of(source.words[0]))
    if hides is not None:
        return has_any(source.words[1:], hides)
    texts = [word.text for word in source.words[1:]]
    names = [text for before, text in pairwise(texts) if before in ("-name", "-iname")]
    is_narrow = names and all(re.fullmatch(_NO_HIDDEN_NAME, text) for text in names)
    return not is_narrow or not {"!", "-not", "-o", "-or", ","}.isdisjoint(texts)


_PATTERN_OPTIONS = ("regexp", "file", "expression", "from-file")


def find_shown_words(name: str, words: Sequence[Word]) -> Sequence[Word] | None:
    """Return the words that may name files whose contents `name` shows or copies, or None if it shows no
    file."""
    if name == "git":
        return _find_words_shown_by_git(words)
    if name in _READS_ARGUMENTS:
        texts = [word.text for word in words]
        at = next((at for at, text in enumerate(texts) if re.match(r"-[a-zA-Z0]*a|--arg", text)), len(texts))
        return [*words[at : at + 2], unknown("{}")]
    kinds = program(name).kinds
    if kinds & _SILENT and not kinds & _SHOWS:
        line = in_line(words)
        is_list = any(why == _LISTED and re.search(form, line) for form, why in program(name).told.items())
        return words if is_list else None
    candidates, arguments = list(words), operands(words)
    if name in ("sed", "gsed"):
        commands = parse_sed_call(words).commands or ()
        candidates += [literal(sed_command.given) for sed_command in commands if sed_command.name in "rR"]
    is_file = len(arguments) == 1 and "shows-files" in kinds
    if "pattern-then-files" in kinds and not is_file and not any(_may_hold_pattern(w.text) for w in words):
        candidates = [w for w in candidates if w is not arguments[0]] if arguments else candidates
    return candidates[:-1] if name in ("cp", "mv", "ln") else candidates


def _may_hold_pattern(option: str) -> bool:
    """Return whether an option may contain the pattern or name its file, so that each operand is a file:
    `-2e.`"""
    if option.startswith("--"):
        name = option[2:].partition("=")[0]
        return bool(name) and any(full.startswith(name) for full in _PATTERN_OPTIONS)
    return option.startswith("-") and not {"e", "f"}.isdisjoint(option)


def _find_words_shown_by_git(words: Sequence[Word]) -> Sequence[Word] | None:
    """Return the operands of git's verb that may be shown, and the options after the verb: `-L1,1:.env`."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in GIT_VALUED else 1
    verb, rest = git_verb(words[at].text if at < len(words) else ""), words[at:]
    if verb.silent or (verb.shows_if and not any(re.match(verb.shows_if, word.text) for word in rest)):
        return None
    options = [word for word in rest if word.text.startswith("-")]
    reads_names = any(word.text.startswith("--batch") for word in options)
    return [*operands(rest)[verb.shows_from :], *options, *([unknown("{}")] if reads_names else [])]
