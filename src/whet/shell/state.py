"""The state while a shell script is walked: its commands so far, the folder, the variables.

Holds the words, folders and input of each simple command. How statements nest is handled elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec
from tree_sitter import Node

from whet.late import late_pattern
from whet.shell.ambiguity import AMBIGUOUS, find_node_ambiguity
from whet.shell.programs import ProgramWords
from whet.shell.words import Word, cook, literal, unknown

# The syntax that a command may use to run without a question: what bash makes of it is certain. Expansions
# other than of a name, tests that compute, and anything rarer need one.
_PLAIN_SYNTAX = ProgramWords(
    """
    program list pipeline command command_name subshell compound_statement comment word number string
    string_content raw_string concatenation file_descriptor simple_expansion variable_name
    special_variable_name command_substitution redirected_statement file_redirect negated_command
    process_substitution if_statement elif_clause else_clause for_statement do_group
    while_statement case_statement case_item extglob_pattern variable_assignment unary_expression
    binary_expression test_operator negation_expression herestring_redirect
    """
)
_TESTED = r"(?:\"?\$\{?\w+\}?\"?|\"[\w ./-]*\"|[\w./~@%+:,-]+)"
# Of the letters, `v` and `R` take a name whose subscript bash computes, as `[[ a -eq b ]]` computes both.
_TEST = (
    rf"\[\[? (?:! )?(?:-[a-uw-zA-QS-Z] )?{_TESTED} \]\]?|\[\[? {_TESTED} (?:=|==|!=) {_TESTED} \]\]?"
    rf"|\[ {_TESTED} -(?:eq|ne|lt|le|gt|ge) {_TESTED} \]"
)
_PLAIN_FORMS: Mapping[str, re.Pattern[str]] = {
    "arithmetic_expansion": late_pattern(r"\$\(\([\d\s+*/%()<>=!&|^~?:,-]*\)\)"),
    "compound_statement": late_pattern(r"\{.*", re.DOTALL),
    "expansion": late_pattern(r"\$\{\w+\}"),
    "test_command": late_pattern(_TEST),
}


REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_NO_WORDS = REDIRECTS | {"variable_assignment", "comment"}
_STRINGS = frozenset(("raw_string", "string", "ansi_c_string"))

Folders = tuple[str, ...]
_MAX_FOLDERS = 8
_STAYS_IN_SHELL = ("builtin", "command", "time")  # and so does the builtin that they run
_PHYSICAL = late_pattern(r"-\w*P|physical$")


class Invocation(msgspec.Struct):
    """One simple command: its words (program first), and where and how it runs.

    `folders` are those that it may run in; empty if they are known only at run time. `piped_from` are the
    commands whose output it reads, `inner` those in its substitutions. `stdin` is the text of a
    here-document or here-string. `start` and `end` are its position in the text, including its
    redirections.
    """

    words: list[Word]
    assignments: list[tuple[str, Word]]
    folders: Folders
    piped_from: tuple[Invocation, ...] = ()
    stdin: Word | None = None
    inner: tuple[Invocation, ...] = ()
    start: int = 0
    end: int = 0


class Redirect(msgspec.Struct):
    """A file that the shell itself opens. `operator` is `>`, `>>`, `<`, ..., and `folders` are as in
    Invocation."""

    operator: str
    target: Word
    folders: Folders


class ShellScript(msgspec.Struct):
    """Everything that a text can run.

    `source` is the text. `doubts` are the reasons why what it runs is uncertain. `is_plain`: it has only
    plain syntax. `all_words` are all words in it; `loops` are the variables of loops with each word;
    `strings` are the positions of quotes and here-documents (True). `tests`: it holds `[ ... ]` or
    `[[ ... ]]`, which are no commands here.
    """

    source: str = ""
    invocations: list[Invocation] = msgspec.field(default_factory=list[Invocation])
    redirects: list[Redirect] = msgspec.field(default_factory=list[Redirect])
    assignments: list[tuple[str, Word]] = msgspec.field(default_factory=list[tuple[str, Word]])
    loops: list[tuple[str, Word]] = msgspec.field(default_factory=list[tuple[str, Word]])
    doubts: list[str] = msgspec.field(default_factory=list[str])
    all_words: list[Word] = msgspec.field(default_factory=list[Word])
    strings: list[tuple[int, int, bool]] = msgspec.field(default_factory=list[tuple[int, int, bool]])
    forks: bool = False
    tests: bool = False
    is_plain: bool = True


class ShellState:
    """The shell at one point of a script, which `script` collects.

    `piped` are the commands whose output is read at this point, `stdin` the text that is read.
    """

    def __init__(self, source: str, folders: Folders, home: str, stdin: str) -> None:
        self.source = source
        self.home = home
        self.folders: Folders = folders
        self._is_physical = False  # `cd` follows links before `..`
        self.script: ShellScript = ShellScript(source)
        self.assigned: set[str] = set()
        self.piped: tuple[Invocation, ...] = ()
        self.stdin: Word | None = literal(stdin) if stdin else None

    def doubt(self, reason: str) -> None:
        """Record a reason why it is uncertain what runs."""
        if reason not in self.script.doubts:
            self.script.doubts.append(reason)

    def see(self, node: Node) -> None:
        """Record whether a node's syntax may run without a question, and the positions of strings."""
        is_plain = not node.is_named or node.type in _PLAIN_SYNTAX
        if node.type in AMBIGUOUS:
            text = self.text_of(node)
            if reason := find_node_ambiguity(node, text):
                self.doubt(reason)
            form = _PLAIN_FORMS.get(node.type)
            is_plain = form is not None and form.fullmatch(text) is not None
        self.script.is_plain = self.script.is_plain and is_plain
        self.script.tests = self.script.tests or node.type == "test_command"
        if node.type in _STRINGS:
            self.script.strings.append((node.start_byte, node.end_byte, False))

    def text_of(self, node: Node) -> str:
        """Return a node's source text."""
        return self.source[node.start_byte : node.end_byte]

    def words(self, *touching: Node) -> list[Word]:
        """Return the words that adjacent nodes without blanks form."""
        words = cook(touching, self.source, self._value)
        self.script.all_words.extend(words)
        if any(word.odd for word in words):
            self.doubt("the shell syntax is unusual")
        return words

    def _value(self, name: str) -> str | None:
        """Return a variable's value if it is certain: HOME and PWD, unless something assigns them."""
        if name in self.assigned:
            return None
        if name == "HOME":
            return self.home
        return self.folders[0] if name == "PWD" and len(self.folders) == 1 else None

    def touching(self, nodes: Sequence[Node]) -> list[list[Node]]:
        """Group nodes that are one word to bash and several to the grammar, as in `'it'\\''s'`."""
        groups: list[list[Node]] = []
        for node in nodes:
            if groups and groups[-1][-1].end_byte == node.start_byte:
                kinds = {groups[-1][-1].type, node.type}
                if not kinds & _NO_WORDS:
                    groups[-1].append(node)
                    continue
                if "variable_assignment" in kinds and not kinds & REDIRECTS:
                    self.doubt("a word touches an assignment")
            groups.append([node])
        return groups

    def assign(self, node: Node) -> tuple[str, Word]:
        """Record an assignment and return its name and value."""
        name, word = "", literal("")
        for child in node.children:
            if child.type in ("variable_name", "subscript") and not name:
                name = self.text_of(child)
            elif child.is_named:
                word = self.words(child)[0]
                if child.type == "array":
                    for group in self.touching([part for part in child.children if part.is_named]):
                        self.words(*group)
        if any(child.type == "+=" for child in node.children):
            word = unknown(f"${{{name}}}{word.text}")
        self.assigned.add(name)
        self.check_value(word)
        return name, word

    def check_value(self, word: Word) -> None:
        """Record a doubt if a variable's value holds a command as text: `((x))` and `${x@P}` run it."""
        if not word.runs and any(sign in word.text for sign in ("$(", "`")):
            self.doubt("a variable holds a command, which bash runs where it computes the variable")

    def run(self, invocation: Invocation) -> None:
        """Add a command, and apply a builtin's effect on the folder and the variables."""
        self.script.invocations.append(invocation)
        words = invocation.words
        while words and (words[0].text in _STAYS_IN_SHELL or words[0].text.startswith("-")):
            words = words[1:]
        if not words:
            return
        name = words[0].text
        if name in ("cd", "pushd"):
            self.folders = merge_folders(self._folders_after_cd(words[1:]), self.folders)
        elif name == "set" and any(_PHYSICAL.match(word.text) for word in words[1:]):
            self._is_physical = True
        elif name in ("popd", "eval", "source", ".", "trap", "enable"):
            self.folders = ()
        elif name in ("read", "mapfile", "readarray", "printf", "getopts", "unset"):
            self.assigned.update(word.text for word in words[1:])

    def narrow_folders(self, before: Folders) -> None:
        """Remove the folders from `before` a `cd` that is now known to have succeeded."""
        after = tuple(folder for folder in self.folders if folder not in before)
        self.folders = after or self.folders

    def _folders_after_cd(self, words: list[Word]) -> Folders:
        """Return the folders after a successful `cd`, or an empty tuple if they can't be known."""
        targets = [word for word in words if word.text not in ("-L", "-P", "-e", "-@", "--")]
        home = self._value("HOME")
        if not targets:
            return (home,) if home is not None else ()
        first = targets[0]
        if first.dynamic or first.glob or first.text[:1] in ("-", "+") or "\0" in first.text:
            return ()
        if not first.text.startswith("/") and "CDPATH" in self.assigned:
            return ()
        is_physical = self._is_physical or any(word.text == "-P" for word in words)
        settle = os.path.realpath if is_physical else os.path.normpath
        folders = ("/",) if first.text.startswith("/") else self.folders
        return tuple(settle(os.path.join(folder, first.text)) for folder in folders)


def merge_folders(first: Folders, second: Folders) -> Folders:
    """Return the folders after either of two paths through a script; empty if one of them is unknown."""
    both = tuple(dict.fromkeys((*first, *second)))
    return both if first and second and len(both) <= _MAX_FOLDERS else ()
