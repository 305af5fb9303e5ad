"""A shell command as the list of simple commands that it can run, from a tree-sitter-bash tree.

Every command is found wherever it stands: pipelines, lists, subshells, loops, functions, substitutions,
here-documents. What can't be known (syntax errors, here-documents that bash may end elsewhere, folders
that depend on run time) is reported as doubt, never guessed. Imports tree-sitter (50 ms of CPU), so only
a process that runs shell commands loads it. Knows nothing about any program's risk.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from whet.approval.shell_words import Word, cook, literal, unknown

_MAX_DEPTH = 120
_MAX_COMMANDS = 2_000
_PARSE_LIMIT_S = 0.5
# bash takes `r\\<newline>m` as the word `rm`, the grammar as two words.
_JOINED_LINES = re.compile(r"(?<![\s\\])\\(?:\\\\)*\n(?=\S)")
# A backslash alone on its line joins what follows to nothing; the grammar may join it to the line before.
_JOINED_TO_NOTHING = re.compile(r"(?:\A|(?<=\n))[ \t]*\\\n")
_UNSAFE = re.compile(r"[^\t\n -~]")
_SUBSTITUTIONS = frozenset(("command_substitution", "process_substitution"))
_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_QUOTED = frozenset(("raw_string", "string", "string_content", "heredoc_body", "heredoc_content"))
_ONE_LINE = frozenset(
    ("command", "declaration_command", "unset_command", "redirected_statement", "file_redirect")
)
# A lone `-` before `<<` is in no node of the tree.
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*(?:(?<=[ \t])-[ \t]+)?")
_COMPUTES = r"\A\[\[.*\s-(?:eq|ne|lt|le|gt|ge)\s|\s-[vR]\s"
_OWN_SHELL = frozenset(("subshell", "command_substitution", "process_substitution"))
_BRANCHES = frozenset(
    ("if_statement", "while_statement", "for_statement", "case_statement", "c_style_for_statement")
)
# What a command that runs unasked may be written with; anything rarer is asked about.
_EVERYDAY = frozenset(
    (
        *(
            "program",
            "list",
            "pipeline",
            "command",
            "command_name",
            "subshell",
            "compound_statement",
            "comment",
        ),
        *("word", "number", "string", "string_content", "raw_string", "concatenation", "file_descriptor"),
        *("simple_expansion", "variable_name", "special_variable_name", "expansion", "command_substitution"),
        *(
            "redirected_statement",
            "file_redirect",
            "negated_command",
            "process_substitution",
            "ansi_c_string",
        ),
        *("if_statement", "elif_clause", "else_clause", "for_statement", "do_group", "while_statement"),
        *("case_statement", "case_item", "variable_assignment", "test_command", "unary_expression"),
        *(
            "binary_expression",
            "test_operator",
            "declaration_command",
            "brace_expression",
            "herestring_redirect",
        ),
        *("negation_expression", "parenthesized_expression", "extglob_pattern", "regex"),
    )
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


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(text: str, cwd: str | None, home: str, stdin: str = "") -> ShellScript:
    """Parse `text` as bash would run it in `cwd` with `stdin` as its input. Never raises for bad text."""
    walker = _Walker(text, cwd, home)
    if stdin:
        walker.stdin = literal(stdin)
    root = _tree(text)
    if root is None:
        walker.doubt("the shell syntax takes too long to read")
        return walker.script
    if root.has_error:
        walker.doubt("the shell syntax can't be read")
    if any(_splits_word(root, found.start()) for found in _JOINED_LINES.finditer(text)):
        walker.doubt("a line break stands inside a word")
    if any(_splits_word(root, found.end() - 2) for found in _JOINED_TO_NOTHING.finditer(text)):
        walker.doubt("a line holds nothing but a backslash")
    walker.walk(root, 0)
    return walker.script


def _splits_word(root: Node, at: int) -> bool:
    """Whether the line break at `at` is outside of quotes and here-documents."""
    node = root.descendant_for_byte_range(at, at + 2)
    return node is None or node.type not in _QUOTED


def _tree(text: str) -> Node | None:
    """Parse within a time limit; None past it. The scanner of tree-sitter-bash 0.25 gives code points above
    255 to C's isalpha and crashes the process on some, so each such character is parsed as a `%`, which is
    an ordinary letter to the shell; positions in the tree are thus positions in `text`.
    """
    source = _UNSAFE.sub("%", text).encode("ascii")
    deadline_s = time.monotonic() + _PARSE_LIMIT_S
    parser = _parser()
    try:
        return parser.parse(
            lambda offset, _: source[offset : offset + 65_536],
            progress_callback=lambda _, __: time.monotonic() > deadline_s,
        ).root_node
    except ValueError:
        parser.reset()
        return None


class _Walker:
    """One pass over a tree, in the order in which the shell would run it."""

    def __init__(self, source: str, cwd: str | None, home: str) -> None:
        self.source = source
        self.home = home
        self.cwd = cwd
        self.script = ShellScript()
        self.known: dict[str, str] = {}
        self.assigned: set[str] = set()
        self.functions: list[str] = []
        self.piped: tuple[Invocation, ...] = ()
        self.stdin: Word | None = None

    def doubt(self, reason: str) -> None:
        if reason not in self.script.doubts:
            self.script.doubts.append(reason)

    def lookup(self, name: str) -> str | None:
        """A variable's value where it is certain: HOME and PWD as long as nothing assigns them."""
        if name in self.assigned:
            return None
        if name == "HOME":
            return self.home
        return self.cwd if name == "PWD" else None

    def cook(self, node: Node) -> list[Word]:
        words = cook(node, self.source, self.lookup, self.home)
        if any(word.odd for word in words):
            self.doubt("the shell syntax is unusual")
        return words

    def text_of(self, node: Node) -> str:
        """The text that a node stands for."""
        return self.source[node.start_byte : node.end_byte]

    def one(self, node: Node) -> Word:
        return self.cook(node)[0]

    def walk(self, node: Node, depth: int) -> None:
        """Take one node; commands are appended to the script in order."""
        if depth > _MAX_DEPTH:
            self.doubt("it is nested too deeply")
            return
        if node.type in _ONE_LINE and not self.stands_on_one_line(node):
            self.doubt("a line break stands inside a command")
        if len(self.script.invocations) > _MAX_COMMANDS:
            self.doubt("it holds too many commands")
            return
        kind = node.type
        if node.is_named and kind not in _EVERYDAY:
            self.script.everyday = False
        if kind in ("arithmetic_expansion", "postfix_expression", "subscript"):
            self.script.arithmetic = True
        if kind == "test_command":
            self.comparison(self.text_of(node))
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, node, depth)
        elif kind in _OWN_SHELL or kind in _BRANCHES:
            self.scoped(node, depth)
        else:
            self.children(node.children, depth)

    def comparison(self, text: str) -> None:
        """`[[ a -eq b ]]` and `-v name` run the commands in a subscript, also in one out of a variable."""
        if re.search(_COMPUTES, text):
            self.script.everyday = False
            if re.search(r"\w\[.*(\$\(|`|\\)", text, re.DOTALL):
                self.doubt("a subscript may hold a command")

    def stands_on_one_line(self, node: Node) -> bool:
        """Whether only blanks and escaped line breaks part a command's words; the grammar joins some lines
        that bash does not, as in `ls<newline>\\<newline>rm x`.
        """
        end = node.start_byte
        for child in node.children:
            if child.start_byte > end and not _BLANKS.fullmatch(self.source, end, child.start_byte):
                return False
            if child.type == "heredoc_redirect":
                return True
            end = child.end_byte
        return True

    def children(self, nodes: Iterable[Node], depth: int) -> None:
        for child in nodes:
            if child.child_count or child.is_named:
                self.walk(child, depth + 1)

    def scoped(self, node: Node, depth: int) -> None:
        """A subshell keeps its `cd` to itself; after a branch the folder is certain only if unchanged."""
        if node.type == "command_substitution":
            text = self.text_of(node)
            if text.startswith("`") and "\\" in text:
                self.doubt("it nests backquotes")
        before, piped = self.cwd, self.piped
        if node.type == "for_statement":
            for child in node.children_by_field_name("variable"):
                self.assigned.add(self.text_of(child))
        self.children(node.children, depth)
        self.piped = piped
        if node.type in _OWN_SHELL:
            self.cwd = before
        elif self.cwd != before:
            self.cwd = None

    def pipeline(self, node: Node, depth: int) -> None:
        """Each member reads what the ones before it wrote."""
        outer, before = self.piped, self.cwd
        members = [child for child in node.children if child.is_named]
        for member in members:
            start = len(self.script.invocations)
            self.walk(member, depth + 1)
            self.piped = (*self.piped, *self.script.invocations[start:])
            self.cwd = before
        self.piped = outer

    def redirected(self, node: Node, depth: int) -> None:
        """A statement with redirections; words that follow a file name belong to the command."""
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        body = [child for child in node.children if child.type not in _REDIRECTS]
        outer = self.stdin
        extra: list[Node] = []
        for child in redirects:
            extra.extend(self.redirect(child, depth))
        start = len(self.script.invocations)
        self.children(body, depth)
        mine = self.script.invocations[start:]
        if extra and mine and body[-1].type in ("command", "declaration_command"):
            mine[-1].words.extend(word for child in extra for word in self.cook(child))
        elif extra:
            self.doubt("words follow a redirection")
        self.stdin = outer
        piped = self.piped
        self.piped = (*piped, *mine)
        for child in redirects:
            if child.type == "heredoc_redirect":
                self.continuation(child, depth)
        self.piped = piped

    def continuation(self, node: Node, depth: int) -> None:
        """What stands after `<<EOF` on its line: a pipeline, a list, other redirections."""
        skipped = ("heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "herestring_redirect")
        arguments = node.children_by_field_name("argument")
        rest = [c for c in node.children if c.is_named and c.type not in skipped and c not in arguments]
        stdin, self.stdin = self.stdin, None
        self.children(rest, depth)
        self.stdin = stdin

    def redirect(self, node: Node, depth: int) -> list[Node]:
        """Record one redirection; gives further words that the grammar hung on it."""
        if node.is_named and node.type not in _EVERYDAY:
            self.script.everyday = False
        if node.type == "heredoc_redirect":
            return self.heredoc(node, depth)
        if node.type == "herestring_redirect":
            words = [child for child in node.children if child.is_named]
            self.children(words, depth)
            self.stdin = self.one(words[0]) if words else literal("")
            return words[1:]
        operator = ""
        targets: list[Node] = []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.is_named:
                targets.append(child)
            elif not targets:
                operator += child.type
        self.children(targets, depth)
        if targets and not _is_descriptor(operator, self.text_of(targets[0])):
            words = self.cook(targets[0])
            target = words[0] if len(words) == 1 else unknown(self.text_of(targets[0]))
            self.script.redirects.append(Redirect(operator, target, self.cwd))
        return targets[1:]

    def heredoc(self, node: Node, depth: int) -> list[Node]:
        """Take a here-document's text; doubt it where bash could see its end elsewhere."""
        start = body = end = None
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_body":
                body = child
            elif child.type == "heredoc_end":
                end = child
            elif child.type in ("file_redirect", "herestring_redirect"):
                self.redirect(child, depth)
        if start is None or body is None or end is None:
            self.doubt("a here-document has no end")
            return node.children_by_field_name("argument")
        is_tabbed = any(child.type == "<<-" for child in node.children)
        delimiter = re.sub(r"[\\'\"]", "", self.text_of(start))
        text = self.text_of(body)
        if not _ends_at(self.source, end, delimiter, is_tabbed, text):
            self.doubt("it can't be told where a here-document ends")
        if self.text_of(start) == delimiter:
            self.children(body.children, depth)
            has_parts = any(child.type != "heredoc_content" for child in body.children)
            self.stdin = unknown(text, text) if has_parts else literal(text)
        else:
            self.stdin = literal(text)
        return node.children_by_field_name("argument")

    def command(self, node: Node, depth: int) -> None:
        """A simple command, an export, or an unset."""
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        nested: list[Node] = []
        outer = self.stdin
        invocation = Invocation(words, assignments, self.cwd, self.piped)
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self.assignment(child))
                nested.append(child)
            elif child.type in _REDIRECTS:
                for extra in self.redirect(child, depth):
                    words.extend(self.cook(extra))
            elif child.type == "comment":
                # As in `ls # x<newline>\rm y`, where the grammar goes on with the command and bash does not.
                self.doubt("a comment stands inside a command")
            else:
                words.extend(self.cook(child))
                if child.child_count:
                    nested.append(child)
                if child.is_named and child.type not in _EVERYDAY:
                    self.script.everyday = False
        self.inner(nested, depth)
        invocation.stdin, self.stdin = self.stdin, outer
        if node.type == "declaration_command":
            self.script.assignments.extend(assignments)
            words.extend(
                Word(f"{n}={w.text}", f"{n}={w.plain}", w.dynamic, prefix=f"{n}=") for n, w in assignments
            )
            assignments.clear()
        self.script.invocations.append(invocation)
        self.step(invocation)

    def inner(self, nodes: Iterable[Node], depth: int) -> None:
        """Walk what is inside words; their commands read neither the pipe nor the here-document."""
        piped, stdin = self.piped, self.stdin
        self.piped, self.stdin = (), None
        self.children(nodes, depth) if depth < _MAX_DEPTH else self.doubt("it is nested too deeply")
        self.piped, self.stdin = piped, stdin

    def step(self, invocation: Invocation) -> None:
        """Follow what a builtin does to the folder and to the variables."""
        words = invocation.words
        if not words:
            return
        name = words[0].text
        if name in ("cd", "pushd"):
            self.cwd = _entered(self.cwd, words[1:], self.home)
        elif name in ("popd", "source", ".", "eval"):
            self.cwd = None if name == "popd" else self.cwd
        elif name in ("read", "mapfile", "readarray", "printf", "getopts", "unset"):
            self.assigned.update(word.text for word in words[1:])

    def assignment(self, node: Node) -> tuple[str, Word]:
        name, word = "", literal("")
        for child in node.children:
            if child.type in ("variable_name", "subscript") and not name:
                name = self.text_of(child)
                if child.type == "subscript":
                    self.script.arithmetic = True
            elif child.is_named:
                word = self.one(child)
        self.assigned.add(name)
        return name, word

    def assigns(self, node: Node, depth: int) -> None:
        """An assignment that stands alone."""
        self.script.assignments.append(self.assignment(node))
        self.inner(node.children, depth)

    def function(self, node: Node, depth: int) -> None:
        """Look at a function's body as if it ran, and for one that starts itself over and over."""
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        start, before = len(self.script.invocations), self.cwd
        self.children((child for child in node.children if child != name), depth)
        if self.cwd != before:
            self.cwd = None
        own = self.text_of(name) if name is not None else ""
        calls = any(i.words and i.words[0].text == own for i in self.script.invocations[start:])
        if (
            calls
            and body is not None
            and re.search(r"[&|]", self.text_of(body).replace("&&", "").replace("||", ""))
        ):
            self.script.forks = True


_HANDLERS = {
    "pipeline": _Walker.pipeline,
    "redirected_statement": _Walker.redirected,
    "command": _Walker.command,
    "declaration_command": _Walker.command,
    "unset_command": _Walker.command,
    "variable_assignment": _Walker.assigns,
    "function_definition": _Walker.function,
    "file_redirect": _Walker.redirect,
}


def _is_descriptor(operator: str, target: str) -> bool:
    """Whether `>&2` or `<&3-` names an open descriptor and no file."""
    return operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target) is not None


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


def _ends_at(source: str, end: Node, delimiter: str, is_tabbed: bool, body: str) -> bool:
    """Whether bash, which compares whole lines, ends the here-document where the tree does."""
    lines = body.split("\n")
    begin = source.rfind("\n", 0, end.start_byte) + 1
    last = source[begin : end.end_byte]
    if is_tabbed:
        lines, last = [line.lstrip("\t") for line in lines], last.lstrip("\t")
    is_whole = source[end.end_byte : end.end_byte + 1] in ("", "\n") and last == delimiter
    return is_whole and delimiter not in lines
