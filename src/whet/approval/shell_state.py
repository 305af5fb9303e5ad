"""What is known while a shell script is walked through: its commands so far, the folder, the variables.

Holds what each simple command is given (words, folder, input). It does not know how statements nest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tree_sitter import Node

from whet.approval.facts import ProgramWords
from whet.approval.shell_words import Word, cook, literal

# What a command that runs unasked may be written with; anything rarer is asked about.
_EVERYDAY = ProgramWords(
    """
    program list pipeline command command_name subshell compound_statement comment word number string
    string_content raw_string concatenation file_descriptor simple_expansion variable_name
    special_variable_name expansion command_substitution redirected_statement file_redirect negated_command
    process_substitution ansi_c_string if_statement elif_clause else_clause for_statement do_group
    while_statement case_statement case_item variable_assignment test_command unary_expression
    binary_expression test_operator declaration_command brace_expression herestring_redirect
    negation_expression parenthesized_expression extglob_pattern regex
    """
)


@dataclass(slots=True)
class Invocation:
    """One simple command: its words (program first), and what is known of where and how it runs.

    `cwd` is None where it depends on run time. `piped_from`: the commands whose output it reads. `stdin`:
    the text given to it by a here-document or here-string.
    """

    words: list[Word]
    assignments: list[tuple[str, Word]]
    cwd: str | None
    piped_from: tuple[Invocation, ...] = ()
    stdin: Word | None = None
    shell_stdin: bool = False


@dataclass(slots=True)
class Redirect:
    """A file that the shell itself opens: `operator` is `>`, `>>`, `<`, ... and `cwd` as of a command."""

    operator: str
    target: Word
    cwd: str | None


@dataclass(slots=True)
class ShellScript:
    """All that a text can run. `doubts`: why it can't be told what runs. `everyday`: only plain syntax."""

    invocations: list[Invocation] = field(default_factory=list[Invocation])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    assignments: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    doubts: list[str] = field(default_factory=list[str])
    forks: bool = False
    everyday: bool = True
    arithmetic: bool = False


class ShellState:
    """The shell at one point of a script, which `script` collects.

    `piped` are the commands whose output is read at this point, `stdin` the text that is given there.
    """

    def __init__(self, source: str, cwd: str | None, home: str, stdin: str) -> None:
        self.source = source
        self.home = home
        self.cwd = cwd
        self.script: ShellScript = ShellScript()
        self.assigned: set[str] = set()
        self.piped: tuple[Invocation, ...] = ()
        self.stdin: Word | None = literal(stdin) if stdin else None

    def doubt(self, reason: str) -> None:
        """Note why it can't be told what runs."""
        if reason not in self.script.doubts:
            self.script.doubts.append(reason)

    def see(self, node: Node) -> None:
        """Note whether a node is of the syntax that may run unasked."""
        if node.is_named and node.type not in _EVERYDAY:
            self.script.everyday = False

    def text_of(self, node: Node) -> str:
        """Give the text that a node stands for."""
        return self.source[node.start_byte : node.end_byte]

    def words(self, node: Node) -> list[Word]:
        """Give the words that a node becomes."""
        words = cook(node, self.source, self._value, self.home)
        if any(word.odd for word in words):
            self.doubt("the shell syntax is unusual")
        return words

    def _value(self, name: str) -> str | None:
        """Give a variable's value where it is certain: HOME and PWD as long as nothing assigns them."""
        if name in self.assigned:
            return None
        if name == "HOME":
            return self.home
        return self.cwd if name == "PWD" else None

    def assign(self, node: Node) -> tuple[str, Word]:
        """Take an assignment; gives the name and the value."""
        name, word = "", literal("")
        for child in node.children:
            if child.type in ("variable_name", "subscript") and not name:
                name = self.text_of(child)
                if child.type == "subscript":
                    self.script.arithmetic = True
            elif child.is_named:
                word = self.words(child)[0]
        self.assigned.add(name)
        return name, word

    def run(self, invocation: Invocation) -> None:
        """Add a command, and follow what a builtin does to the folder and to the variables."""
        self.script.invocations.append(invocation)
        words = invocation.words
        if not words:
            return
        name = words[0].text
        if name in ("cd", "pushd"):
            self.cwd = _entered(self.cwd, words[1:], self.home)
        elif name == "popd":
            self.cwd = None
        elif name in ("read", "mapfile", "readarray", "printf", "getopts", "unset"):
            self.assigned.update(word.text for word in words[1:])


def _entered(cwd: str | None, words: list[Word], home: str) -> str | None:
    """Give the folder after `cd`, or None where it can't be known."""
    targets = [word for word in words if word.text not in ("-L", "-P", "-e", "-@", "--")]
    if not targets:
        return home
    first = targets[0]
    if (
        first.dynamic
        or first.glob
        or first.text.startswith("-")
        or (cwd is None and not first.text.startswith("/"))
    ):
        return None
    return os.path.normpath(os.path.join(cwd or "/", first.text))
