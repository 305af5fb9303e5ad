"""Parse a shell command into the simple commands that it can run, using tree-sitter-bash.

Commands are found everywhere: pipelines, lists, subshells, loops, functions, substitutions,
here-documents. Anything uncertain (syntax errors, here-documents that bash may end elsewhere, folders
known only at run time) is reported as a doubt, never guessed. Importing tree-sitter takes 50 ms of CPU, so
only processes that run shell commands load this module. The risk of programs is judged elsewhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

from tree_sitter import Language, Node, Parser

from whet.late import late_pattern
from whet.shell.ambiguity import find_ambiguities
from whet.shell.redirects import RedirectionReader
from whet.shell.state import REDIRECTS, Folders, Invocation, ShellScript, ShellState, merge_folders
from whet.shell.words import Word, unknown

_MAX_DEPTH = 120
_MAX_COMMANDS = 2_000
_PARSE_CPU_S = 0.5
_UNSAFE = late_pattern(r"[^\t\n -~]")
_ONE_LINE = frozenset(
    (
        *("command", "declaration_command", "unset_command", "redirected_statement", "file_redirect"),
        "variable_assignment",
    )
)
# A lone `-` before `<<` belongs to no node of the tree.
_BLANKS = late_pattern(r"(?:[ \t]|\\[ \t\n])*(?:(?<=[ \t])-[ \t]+)?")
_SUBSCRIPT = late_pattern(r"\w\[.*(\$\(|`|\\)", re.DOTALL)
_OWN_SHELL = frozenset(("subshell", "command_substitution", "process_substitution"))
_BRANCHES = frozenset(
    ("if_statement", "while_statement", "for_statement", "case_statement", "c_style_for_statement")
)


@cache
def _parser() -> Parser:
    """Create the parser. Only the compiled part of the grammar's package is loaded, because the package
    itself spends 5 ms importing modules for syntax colours."""
    package = PathFinder.find_spec("tree_sitter_bash")
    search_paths = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("tree_sitter_bash._binding", search_paths) if search_paths else None
    if spec is None or spec.loader is None:
        raise ImportError("tree_sitter_bash is not installed")
    grammar = module_from_spec(spec)
    spec.loader.exec_module(grammar)
    language: object = grammar.language()
    return Parser(Language(language))


def parse(text: str, folders: Folders, home: str, stdin: str = "") -> ShellScript:
    """Parse `text` as bash would run it in one of `folders` with `stdin` as its input. Never raises for bad
    text."""
    state = ShellState(text, folders, home, stdin)
    root = _parse_tree(text)
    if root is None:
        state.doubt("the shell syntax takes too long to read")
        return state.script
    if root.has_error:
        state.doubt("the shell syntax can't be read")
    for reason in find_ambiguities(root, text):
        state.doubt(reason)
    _Walker(state).walk(root, 0)
    return state.script


def _parse_tree(text: str) -> Node | None:
    """Parse within a limit of CPU time, which a busy machine does not use up. Returns None if it is exceeded.

    The scanner of tree-sitter-bash 0.25 passes code points above 255 to C's isalpha and crashes the
    process on some. So each such character is parsed as `%`, an ordinary letter to the shell; positions in
    the tree are therefore positions in `text`.
    """
    source = _UNSAFE.sub("%", text).encode("ascii")
    until_s = time.thread_time() + _PARSE_CPU_S
    parser = _parser()
    try:
        return parser.parse(
            lambda offset, _: source[offset : offset + 65_536],
            progress_callback=lambda _, __: time.thread_time() > until_s,
        ).root_node
    except ValueError:
        parser.reset()
        return None


class _Walker:
    """One pass over a tree, in the order in which the shell would run it."""

    def __init__(self, state: ShellState) -> None:
        self._state = state
        self.redirections = RedirectionReader(state, self.walk_all)

    def walk(self, node: Node, depth: int) -> None:
        """Walk one node. Commands are appended to the script in order."""
        if depth > _MAX_DEPTH:
            self._state.doubt("it is nested too deeply")
            return
        if node.type in _ONE_LINE and not _on_one_line(self._state.source, node):
            self._state.doubt("a line break stands inside a command")
        if len(self._state.script.invocations) > _MAX_COMMANDS:
            self._state.doubt("it holds too many commands")
            return
        kind = node.type
        self._state.see(node)
        if kind == "test_command":
            self._check_comparison(self._state.text_of(node))
        if kind == "comment" and _continues_word(node, self._state.source):
            self._state.doubt("a comment stands inside a word")
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, node, depth)
        elif kind in _OWN_SHELL or kind in _BRANCHES:
            self.walk_scope(node, depth)
        else:
            self.walk_all(node.children, depth)

    def _check_comparison(self, text: str) -> None:
        """Record a doubt if a test may run a command: `[[ a -eq b ]]` and `-v name` run those in a subscript.
        `[[x` is a program's name."""
        if re.match(r"\[+[^\s\[]", text):
            self._state.doubt("a word begins with `[`")
        if _SUBSCRIPT.search(text):
            self._state.doubt("a subscript may hold a command")

    def walk_all(self, nodes: Iterable[Node], depth: int) -> None:
        """Walk nodes one level deeper, except for punctuation."""
        for child in nodes:
            if child.child_count or child.is_named:
                self.walk(child, depth + 1)

    def walk_scope(self, node: Node, depth: int) -> None:
        """Walk a subshell or branch. A subshell's `cd` ends with it; after a branch, the folder is certain
        only if unchanged."""
        if node.type == "command_substitution":
            text = self._state.text_of(node)
            if text.startswith("`") and "\\" in text:
                self._state.doubt("it nests backquotes")
        before, piped = self._state.folders, self._state.piped
        if node.type == "for_statement":
            names = [self._state.text_of(child) for child in node.children_by_field_name("variable")]
            self._state.assigned.update(names)
            groups = self._state.touching(node.children_by_field_name("value"))
            # Without words, a loop takes those that `set` was given.
            words = [word for group in groups for word in self._state.words(*group)] or [unknown("$@")]
            for word in words:
                self._state.check_value(word)
            self._state.script.loops += ((name, word) for name in names for word in words)
        self.walk_all(node.children, depth)
        self._state.piped = piped
        if node.type in _OWN_SHELL:
            self._state.folders = before
        elif self._state.folders != before:
            is_loop = node.type not in ("if_statement", "case_statement")
            self._state.folders = () if is_loop else merge_folders(self._state.folders, before)

    def pipeline(self, node: Node, depth: int) -> None:
        """Walk a pipeline: each member reads the output of the ones before it."""
        outer, before = self._state.piped, self._state.folders
        members = [child for child in node.children if child.is_named]
        for member in members:
            start = len(self._state.script.invocations)
            self.walk(member, depth + 1)
            self._state.piped = (*self._state.piped, *self._state.script.invocations[start:])
            self._state.folders = before
        self._state.piped = outer

    def command(self, node: Node, depth: int) -> None:
        """Add a simple command, an export, or an unset."""
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        nested: list[Node] = []
        outer = self._state.stdin
        invocation = Invocation(words, assignments, self._state.folders, self._state.piped)
        invocation.start, invocation.end = node.start_byte, node.end_byte
        for group in self._state.touching(node.children):
            child = group[0]
            if child.type == "variable_assignment":
                assignments.append(self._state.assign(child))
                nested += child.children
            elif child.type in REDIRECTS:
                for extra in self.redirections.take(child, depth):
                    words.extend(self._state.words(*extra))
            elif child.type == "comment":
                # As in `ls # x<newline>\rm y`: the grammar continues the command there, bash does not.
                self._state.doubt("a comment stands inside a command")
            else:
                words.extend(self._state.words(*group))
                for part in group:
                    if part.child_count:
                        nested.append(part)
                    self._state.see(part)
        start = len(self._state.script.invocations)
        self.walk_inside(nested, depth)
        invocation.inner = tuple(self._state.script.invocations[start:])
        invocation.stdin, self._state.stdin = self._state.stdin, outer
        if node.type == "declaration_command":
            self._state.script.assignments.extend(assignments)
            words.extend(
                Word(f"{name}={word.text}", f"{name}={word.plain}", word.dynamic, prefix=f"{name}=")
                for name, word in assignments
            )
            assignments.clear()
        self._state.run(invocation)

    def walk_inside(self, nodes: Iterable[Node], depth: int) -> None:
        """Walk the insides of words. Their commands read neither the pipe nor the here-document."""
        piped, stdin = self._state.piped, self._state.stdin
        self._state.piped, self._state.stdin = (), None
        self.walk_all(nodes, depth) if depth < _MAX_DEPTH else self._state.doubt("it is nested too deeply")
        self._state.piped, self._state.stdin = piped, stdin

    def assignment(self, node: Node, depth: int) -> None:
        """Record an assignment without a command."""
        self._state.script.assignments.append(self._state.assign(node))
        self.walk_inside(node.children, depth)

    def function(self, node: Node, depth: int) -> None:
        """Walk a function's body as if it ran, and check whether it starts itself repeatedly."""
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        start, before = len(self._state.script.invocations), self._state.folders
        self.walk_all((child for child in node.children if child != name), depth)
        if self._state.folders != before:
            self._state.folders = ()
        own_name = self._state.text_of(name) if name is not None else ""
        inner = self._state.script.invocations[start:]
        calls = any(call.words and call.words[0].text == own_name for call in inner)
        inside = self._state.text_of(body) if body is not None else ""
        if calls and re.search(r"[&|]", inside.replace("&&", "").replace("||", "")):
            self._state.script.forks = True


_HANDLERS: dict[str, Callable[[_Walker, Node, int], object]] = {
    "pipeline": _Walker.pipeline,
    "list": lambda walker, node, depth: walker.redirections.walk_list(node, depth),
    "redirected_statement": lambda walker, node, depth: walker.redirections.statement(node, depth),
    "file_redirect": lambda walker, node, depth: walker.redirections.take(node, depth),
    "command": _Walker.command,
    "declaration_command": _Walker.command,
    "unset_command": _Walker.command,
    "variable_assignment": _Walker.assignment,
    "function_definition": _Walker.function,
}


def _continues_word(comment: Node, source: str) -> bool:
    """Return whether a comment begins in the middle of a word for bash: `a=(1)# x; rm y` runs rm."""
    before, start = comment.prev_sibling, comment.start_byte
    if before is not None and before.type == "variable_assignment" and before.end_byte == start:
        return True
    return start > 0 and source[start - 1] not in " \t\n;&|()"


def _on_one_line(source: str, node: Node) -> bool:
    """Return whether a command's words are separated only by blanks and escaped line breaks, and the parts of
    an assignment by nothing.

    The grammar joins some lines that bash does not, as in `ls<newline>\\<newline>rm x`.
    """
    end, is_word = node.start_byte, node.type == "variable_assignment"
    for child in node.children:
        if child.start_byte > end and (is_word or not _BLANKS.fullmatch(source, end, child.start_byte)):
            return False
        if child.type == "variable_assignment" and not _on_one_line(source, child):
            return False
        if child.type == "heredoc_redirect":
            return True
        end = child.end_byte
    return True
