"""Judge the risk of a shell command from the commands it would run.

`analyse` parses the text, looks through wrappers (`env`, `sudo`, `sh -c`, `xargs`, ...) at every simple
command, and judges each with the tables of readonly and danger_*. Anything that can't be known before it
runs is dangerous. This guards against accidents and careless models and is not a sandbox: scripts that a
command starts are not read. Rules, modes and people are handled elsewhere.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence

import msgspec

from whet.approval.danger_code import judge_code
from whet.approval.danger_files import FILE_RULES, judge_write
from whet.approval.danger_query import judge_client_input, judge_input_file
from whet.approval.danger_reach import judge_operands, judge_output_options, judge_program
from whet.approval.danger_unknown import judge_unknown
from whet.approval.exposure import Exposure
from whet.approval.openings import Needs
from whet.approval.paths import resolve_links, within
from whet.approval.possible_texts import UNKNOWN, VariableValues, list_values, possible_texts
from whet.approval.readonly import is_standard_path, only_reads
from whet.approval.risk import (
    CommandSetting,
    Finding,
    Level,
    Piece,
    RiskScope,
    ShellRisk,
    UnknownProgram,
    list_reasons,
    rank,
    worst,
)
from whet.approval.scopes import escape_pattern
from whet.approval.shell_grants import grant_for
from whet.approval.variables import is_name_table, judge_loops, judge_variable
from whet.config.secret_variables import is_secret
from whet.late import late_pattern
from whet.searchpath import find_program_inside
from whet.shell.code import find_interpreter_code
from whet.shell.fetches import VERBS
from whet.shell.parse import parse
from whet.shell.programs import ProgramWords, program
from whet.shell.state import Folders, Invocation, ShellScript
from whet.shell.words import Word, fill_words, literal, name_of
from whet.shell.wrappers import WrappedCommand, join_words, unwrap

_MAX_LENGTH = 100_000
_MAX_NESTING = 6
HIDDEN = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff\ue000-\uf8ff]"
)
_RESERVED = ProgramWords(
    "{ } ! [[ ]] if then elif else fi for while until do done case esac select function in"
)
# A name passed to a builtin may have a subscript, in which bash runs commands even if it is quoted.
_SUBSCRIPT = late_pattern(r"\w\[.*(\$\(|`)", re.DOTALL)
_SETS_DEFAULT = late_pattern(r"\$\{\w+:?=")  # `${name:=value}`
_VARIABLES = late_pattern(r"\$\w+|\$\{\w+\}")
_VARIABLE_NAME = late_pattern(r"\$\{?(\w+)")
_SECRET_NAME = late_pattern(r"SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_?KEY|CREDENTIAL", re.IGNORECASE)


def analyse(command: str, cwd: str, scope: RiskScope, stdin: str = "") -> ShellRisk:
    """Judge the text that a shell would run in `cwd` with `stdin` as its input. Never raises for bad text."""
    if len(command) > _MAX_LENGTH or len(stdin) > 10 * _MAX_LENGTH:
        long = Piece(command, "", "dangerous", (UnknownProgram("it is too long to be looked through"),))
        return ShellRisk("dangerous", list_reasons((long,)), (long,))
    judge = _Judge(scope)
    # Hidden characters are never printable. Checking that first saves the 2 ms of CPU to compile the pattern.
    if not command.isprintable() and HIDDEN.search(command.replace("\t", " ")):
        judge.add_finding("dangerous", "it holds characters that can't be seen")
    judge.judge_text(command, (cwd,), stdin, 0)
    return judge.result(command)


def _may_hold_secret(name: str) -> bool:
    """Return whether a variable seems to hold a key or a password: by its name, or by its value in Whet's own
    environment."""
    return _SECRET_NAME.search(name) is not None or is_secret(name, os.environ.get(name, ""))


class _Judge:
    """Collects the pieces of one command, and the findings about the whole."""

    def __init__(self, scope: RiskScope) -> None:
        self.scope = scope
        self.pieces: list[Piece] = []
        self.wholes: list[Finding] = []
        self.exposure: Exposure = Exposure(scope)
        self.needs: Needs = Needs(scope)
        self.everyday = True
        self.decides = False  # it tests or assigns something, which is no command
        self.values: VariableValues = {}

    def add_finding(self, level: Level, reason: str) -> None:
        """Record a risk that belongs to no single command."""
        if (level, reason) not in self.wholes:
            self.wholes.append((level, reason))

    def result(self, command: str) -> ShellRisk:
        for level, reason in self.exposure.judge_whole():
            self.add_finding(level, reason)
        pieces = [*self.pieces, *(Piece(command, "", level, (reason,)) for level, reason in self.wholes)]
        level = worst(piece.level for piece in pieces)
        if level == "safe" and not (self.everyday and pieces):
            level = "safe" if self.everyday and self.decides else "normal"
            pieces.append(Piece(command, "", level))
        return ShellRisk(
            level,
            list_reasons(pieces),
            tuple(pieces),
            self.exposure.network,
            frozenset(self.exposure.downloads - self.scope.downloads),
            self.needs.openings,
        )

    def judge_text(self, text: str, folders: Folders, stdin: str, nesting: int) -> None:
        """Judge shell text: the command itself, or the text given to `sh -c`, eval or a here-document."""
        if nesting > _MAX_NESTING or len(text) > _MAX_LENGTH:
            self.add_finding(*_cant_tell("shells within shells"))
            return
        script = parse(text, folders, self.scope.home, stdin)
        self.exposure.take(script)
        self.decides = self.decides or script.tests or bool(script.assignments)
        has_defaults = "${" in text and _SETS_DEFAULT.search(text) is not None
        outer, self.values = self.values, {} if has_defaults else list_values(script)
        for doubt in script.doubts:
            self.add_finding(*_cant_tell(doubt))
        if script.forks:
            self.add_finding("forbidden", "a function that starts itself without end (a fork bomb)")
        self.everyday &= script.is_plain and "[$(" not in text and "[`" not in text
        names = _VARIABLE_NAME.findall(text) if "$" in text else ()
        if any(map(_may_hold_secret, names)) or is_environment_dump(script):
            self.exposure.secret = True
        self.judge_redirects(script)
        for name, word in script.assignments:
            self.judge_assignment(name, word)
        pieces, is_everyday = judge_loops(script)
        self.pieces, self.everyday = [*self.pieces, *pieces], self.everyday and is_everyday
        for invocation in script.invocations:
            self.judge_invocation(invocation, nesting)
        self.values = outer

    def judge_redirects(self, script: ShellScript) -> None:
        """Judge the files that the shell opens."""
        for redirect in script.redirects:
            target = redirect.target
            if "/dev/tcp/" in target.text or "/dev/udp/" in target.text:
                self.exposure.network = True
                self.add_finding("dangerous", "opens a network connection")
            elif redirect.operator in ("<", "<&"):
                for setting in self.settings_in(redirect.folders):
                    for level, reason in self.exposure.judge_shown_files("cat", [target], setting):
                        self.add_finding(level, reason)
                    for level, reason in judge_input_file(script, target, setting):
                        self.add_finding(level, reason)
            else:
                findings = [judge_write(target, setting) for setting in self.settings_in(redirect.folders)]
                self.needs.add_written_file(
                    target, CommandSetting(next(iter(redirect.folders), None), self.scope)
                )
                level, reason = max(findings, key=lambda finding: rank(finding[0]))
                forms = (target.normal_form, target.exact_form)
                text, exact = (f"{redirect.operator} {form}" for form in forms)
                if level != "safe":
                    reasons = (reason,) if reason else ()
                    self.pieces.append(Piece(text, ">", level, reasons, escape_pattern(exact), exact=exact))

    def settings_in(self, folders: Folders) -> list[CommandSetting]:
        """Return the settings in which a command may run, one per folder."""
        return [CommandSetting(folder, self.scope) for folder in folders or (None,)]

    def judge_assignment(self, name: str, word: Word) -> None:
        """Judge a variable's assignment."""
        if is_name_table(name):
            self.add_finding("dangerous", UnknownProgram("changes what later commands mean"))
        piece, is_everyday = judge_variable(name, word)
        if piece is not None:
            self.pieces.append(piece)
            self.wholes.extend(self.exposure.judge_value(piece, word))
        self.everyday = self.everyday and is_everyday

    def judge_invocation(self, invocation: Invocation, nesting: int) -> None:
        """Judge one simple command and the commands inside it."""
        for name, word in invocation.assignments:
            self.judge_assignment(name, word)
            self.everyday = self.everyday and not name.islower()
        if invocation.words:
            self.judge_words(invocation.words, invocation, nesting)

    def judge_words(self, words: Sequence[Word], invocation: Invocation, nesting: int) -> None:
        """Judge a command's words. Wrappers are looked through up to the nesting limit."""
        if nesting > _MAX_NESTING:
            self.add_finding(*_cant_tell("commands within commands"))
            return
        if doubt := _program_doubt(words[0]):
            programs = _list_programs(words[0], self.values)
            level, reason = _cant_tell(doubt)
            self.pieces.append(_build_piece(words, [(level, str(reason) if programs else reason)]))
            for first_words in programs:
                self.judge_words([*first_words, *words[1:]], invocation, nesting + 1)
            return
        self.judge_guesses(WrappedCommand(maybe=fill_words(words)), invocation, nesting)
        inside = unwrap(words)
        findings = list(self.collect_findings(words, invocation, inside))
        if inside is not None:
            self.judge_wrapped(inside, invocation, nesting)
            if inside.vanishes and not findings and not inside.doubts:
                return
        at_random = self.exposure.shows_computed_name(name_of(words[0]), invocation)
        piece = _build_piece(words, findings, at_random=at_random)
        is_elsewhere = _is_elsewhere(invocation.folders, self.scope)
        self.pieces.append(msgspec.structs.replace(piece, is_elsewhere=is_elsewhere))

    def judge_wrapped(self, inside: WrappedCommand, invocation: Invocation, nesting: int) -> None:
        """Judge the commands and texts that a wrapper runs."""
        for doubt in inside.doubts:
            self.add_finding(*_cant_tell(doubt))
        for name, word in inside.assigns:
            self.judge_assignment(name, word)
        folders = () if inside.elsewhere else invocation.folders
        start = len(self.pieces)
        for text in inside.texts:
            if text.dynamic:
                self.add_finding(*_cant_tell("its text is made at run time"))
            self.judge_text(text.text, folders, "", nesting + 1)
        for command in inside.commands:
            inner = Invocation(
                command, [], folders, invocation.piped_from, invocation.stdin, invocation.inner
            )
            self.judge_words(command, inner, nesting + 1)
        self.judge_guesses(inside, invocation, nesting)
        if inside.in_container:
            for at, piece in enumerate(self.pieces[start:], start):
                if piece.level == "forbidden":
                    self.pieces[at] = msgspec.structs.replace(piece, level="dangerous")

    def judge_guesses(self, inside: WrappedCommand, invocation: Invocation, nesting: int) -> None:
        """Judge the commands that a wrapper may run, and record those that would be dangerous."""
        for command in inside.maybe:
            if _program_doubt(command[0]):
                continue
            other = _Judge(self.scope)
            other.judge_words(command, Invocation(command, [], invocation.folders), nesting + 1)
            self.exposure.network = self.exposure.network or other.exposure.network
            dangerous = [piece for piece in other.pieces if rank(piece.level) >= rank("dangerous")]
            self.pieces.extend(dangerous)
            self.wholes.extend(finding for finding in other.wholes if finding not in self.wholes)

    def collect_findings(
        self, words: Sequence[Word], invocation: Invocation, inside: WrappedCommand | None
    ) -> Iterator[Finding]:
        """Yield the findings of the tables about one simple command."""
        name, arguments = name_of(words[0]), words[1:]
        kinds = program(name).kinds
        for setting in self.settings_in(invocation.folders):
            if name in FILE_RULES:
                yield from FILE_RULES[name](arguments, setting)
            yield from judge_program(name, arguments, setting)
            reads = only_reads(words)
            if not reads:
                yield from judge_output_options(name, arguments, setting)
                yield from judge_operands(name, arguments, setting, self.values) if inside is None else ()
            self.needs.add_command(name, arguments, setting, reads=reads)
            yield from self.exposure.judge_shown_files(name, arguments, setting)
            yield from self.exposure.judge_download(name, words, setting)
        yield from judge_unknown(words)
        yield from (*_judge_location(words, self.scope), *self.exposure.judge_addresses(name, arguments))
        yield from _judge_names(name, arguments, invocation.stdin)
        if "shell" in kinds and inside is not None and inside.fed:
            self.judge_shell_input(invocation)
        yield from self.judge_interpreter(name, arguments, invocation)
        text = " ".join((name, *(w.text for w in arguments[:3])))
        if "network" in kinds or VERBS.match(text):
            self.exposure.network = True
            for setting in self.settings_in(invocation.folders):
                self.needs.add_network(name, arguments, setting)

    def judge_interpreter(
        self, name: str, arguments: Sequence[Word], invocation: Invocation
    ) -> Iterator[Finding]:
        """Judge code passed to a language or a database client on the line or as input."""
        if name in ("source", "."):
            if arguments and re.fullmatch(r"/dev/stdin|/dev/fd/0|/proc/self/fd/0", arguments[0].text):
                self.judge_shell_input(invocation)
            elif arguments and (arguments[0].runs or (arguments[0].dynamic and not arguments[0].prefix)):
                yield "dangerous", UnknownProgram("runs a script made at run time")
        elif "database" in program(name).kinds:
            for setting in self.settings_in(invocation.folders):
                yield from judge_client_input(name, invocation, setting)
        yield from self.judge_codes(find_interpreter_code(name, arguments), invocation)

    def judge_codes(self, codes: list[Word] | None, invocation: Invocation) -> Iterator[Finding]:
        """Judge an interpreter's code. An empty list means that it reads its input."""
        text_input = invocation.stdin
        if codes is None:
            return
        if not codes and text_input is not None:
            codes = [text_input]
        elif not codes and invocation.piped_from:
            self.add_finding("dangerous", _describe_piped_text(invocation))
        for code in codes:
            if code.dynamic or code.glob:
                yield "dangerous", "can't tell what it runs: its code is made at run time"
            yield from filter(None, [judge_code(code.text)])
            for setting in self.settings_in(invocation.folders):
                yield from self.exposure.judge_code(code.text, setting)

    def judge_shell_input(self, invocation: Invocation) -> None:
        """Judge the input of a shell that runs it, if the text is known."""
        text_input = invocation.stdin
        if text_input is None and invocation.piped_from:
            text_input = _printed_text(invocation.piped_from[-1])
            reason = _describe_piped_text(invocation)
            self.add_finding("dangerous", reason if text_input else UnknownProgram(reason))
        if text_input is None:
            return
        if text_input.dynamic:
            self.add_finding(*_cant_tell("its text is made at run time"))
        self.judge_text(text_input.text, invocation.folders, "", 1)


def _cant_tell(why: str) -> Finding:
    prefix = "can't tell what it runs"
    return "dangerous", UnknownProgram(why if why == prefix else f"{prefix}: {why}")


def _is_elsewhere(folders: Folders, scope: RiskScope) -> bool:
    """Return whether a command may run in a folder outside the workspace, or in one that is not known."""
    targets = [resolve_links(folder) for folder in folders]
    return not targets or any(not target or not within(target, scope.workspace) for target in targets)


def _build_piece(words: Sequence[Word], findings: list[Finding], *, at_random: bool = False) -> Piece:
    """Return one simple command with its level."""
    text = normalise_command(words)
    problems = [finding for finding in findings if finding[0] != "safe"]
    level = worst(level for level, _ in problems)
    if level == "safe":
        level = "safe" if only_reads(words) and not at_random else "normal"
    reasons = tuple(dict.fromkeys(reason for _, reason in problems if reason))
    name = name_of(words[0])
    program_name = name if words[0].text == name or is_standard_path(words[0].text) else words[0].text
    exact = normalise_command(words, is_exact=True)
    piece = Piece(text, program_name, level, reasons, exact=exact)
    is_whole = piece.is_diverted
    grant = escape_pattern(exact) if is_whole else grant_for(program_name, words[1:], exact, level)
    return msgspec.structs.replace(piece, grant=grant)


def _judge_location(words: Sequence[Word], scope: RiskScope) -> Iterator[Finding]:
    """Judge a command that only reads by the file that the shell runs for it. The system's own folders count
    as outside also of a workspace that holds them: `/` in a container."""
    path = find_program_inside(words[0].text, scope.workspace) if only_reads(words) else ""
    if path and not is_standard_path(path):
        yield "normal", f"PATH leads to a file of the workspace: {path}"


def normalise_command(words: Sequence[Word], *, is_exact: bool = False) -> str:
    """Return a command in the form that rules match: without unnecessary quotes and standard folders.

    With `is_exact` the quotes stay that tell a command from others.
    """
    program = words[0].plain
    if is_standard_path(program):
        program = program.rsplit("/", 1)[-1]
    operands = (word.exact_form if is_exact else word.normal_form for word in words[1:])
    return " ".join((literal(program).normal_form, *operands))


def _judge_names(name: str, arguments: Sequence[Word], stdin: Word | None) -> Iterator[Finding]:
    """Judge the names of variables and commands that a builtin is given, and keys for an editor or pager."""
    kinds = program(name).kinds
    if "keys" in kinds and stdin is not None:
        yield "dangerous", f"{name}: the keys that it is given can run programs"
    sets = "subscripts" in kinds and (name != "printf" or any(w.text.startswith("-v") for w in arguments))
    if sets and any(_SUBSCRIPT.search(word.text) for word in (*arguments, *filter(None, [stdin]))):
        yield "dangerous", "bash runs what stands in a subscript"
    if ("renames" in kinds and arguments) or (sets and any(is_name_table(w.text) for w in arguments)):
        yield "dangerous", UnknownProgram("changes what later commands mean")


def _list_programs(word: Word, values: VariableValues) -> list[list[Word]]:
    """Return the words that a program's name may become, once for each value of the variables in it; nothing
    if a part of it is not known."""
    if not word.dynamic or "IFS" in values or set(_VARIABLES.sub("", word.text)) & set("$`(){}"):
        return []
    texts = possible_texts(word, values)
    word_lists = [text.split() if word.loose else [text] for text in texts]
    if not all(word_lists) or any(set(text) & set(f"{UNKNOWN}*?[]$`()") for text in texts):
        return []
    return [[literal(part) for part in parts] for parts in word_lists]


def _program_doubt(program: Word) -> str:
    """Return the reason why a program's name can't be trusted, or an empty string."""
    if program.dynamic:
        return "the program's name is made at run time"
    if program.glob and program.text != "[":
        return "the program's name is a pattern"
    if not program.text.isascii():
        return f"look-alike letters in the program's name ({_name_strange_letter(program.text)})"
    if (
        program.text in _RESERVED
        or program.text.startswith("-")
        or re.search(r"[\s;|&<>(){}$`'\"\\=]", program.text)
    ):
        return "the shell syntax is unusual"
    return ""


def _name_strange_letter(text: str) -> str:
    letter = next(character for character in text if not character.isascii())
    return unicodedata.name(letter, f"U+{ord(letter):04X}").lower()


def _printed_text(source: Invocation) -> Word | None:
    """Return the text that a command is known to print, or None."""
    name = name_of(source.words[0]) if source.words else ""
    if name == "cat" and len(source.words) == 1:
        return source.stdin
    arguments = [word for word in source.words[1:] if word.text not in ("-n", "-e")]
    return join_words(arguments)[0] if name in ("echo", "printf") and arguments else None


def _describe_piped_text(invocation: Invocation) -> str:
    for source in invocation.piped_from:
        if source.words and "network" in program(name_of(source.words[0])).kinds:
            return "runs a download that nobody has read"
    return "runs text that another command makes"


def is_environment_dump(script: ShellScript) -> bool:
    """Return whether some command prints the environment."""
    return any(
        i.words and i.words[0].text in ("env", "printenv", "export", "declare", "set") and len(i.words) == 1
        for i in script.invocations
    )
