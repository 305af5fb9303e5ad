"""Read a shell's redirections: the files they open, and the text of here-documents and here-strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from whet.late import late_pattern
from whet.shell.state import REDIRECTS, Invocation, Redirect, ShellState, merge_folders
from whet.shell.words import literal, unknown

# Unescaped. Each match ends with the sign that follows a `$`, or with the backquote.
_SUBSTITUTION = late_pattern(r"(?<!\\)(?:\\\\)*(?:`|\$[(\[])")


class RedirectionReader:
    """Reads the redirections of a script. `walk` visits the nodes that may hold commands."""

    def __init__(self, state: ShellState, walk: Callable[[Iterable[Node], int], None]) -> None:
        self._state = state
        self._walk = walk

    def statement(self, node: Node, depth: int) -> None:
        """Walk a statement with redirections. Words after a file name belong to the command."""
        state = self._state
        redirects = [child for child in node.children if child.type in REDIRECTS]
        body = [child for child in node.children if child.type not in REDIRECTS]
        outer = state.stdin
        trailing_words: list[list[Node]] = []
        start = len(state.script.invocations)

        def read_redirects() -> None:
            for child in redirects:
                trailing_words.extend(self.take(child, depth))

        if len(body) == 1 and body[0].type == "list":
            # The grammar attaches the redirection of a list's last command to the whole list.
            self.walk_list(body[0], depth, read_redirects)
        else:
            read_redirects()
            self._walk(body, depth)
        commands = state.script.invocations[start:]
        if trailing_words and commands and body and body[-1].type in ("command", "declaration_command"):
            commands[-1].words.extend(word for group in trailing_words for word in state.words(*group))
        elif trailing_words:
            state.doubt("words follow a redirection")
        for invocation in commands[-1:]:
            invocation.end = node.end_byte
        state.stdin = outer
        piped = state.piped
        state.piped = (*piped, *commands)
        for child in redirects:
            if child.type == "heredoc_redirect":
                self._continuation(child, depth)
        state.piped = piped

    def walk_list(self, node: Node, depth: int, read_redirects: Callable[[], None] | None = None) -> None:
        """Walk `a && b` or `a || b`: b runs after a, or not at all. `read_redirects` is called before b."""
        state = self._state
        first, last = node.children[0], node.children[-1]
        start = state.folders
        self._walk([first], depth)
        before = state.folders
        if _needs_all(first) and any(child.type == "&&" for child in node.children):
            state.narrow_folders(start)
        if read_redirects is not None:
            read_redirects()
        if last is not first:
            self._walk([last], depth)
        state.folders = merge_folders(state.folders, before) if state.folders != before else before

    def _continuation(self, node: Node, depth: int) -> None:
        """Walk the rest of the line after `<<EOF`: a pipeline, a list, other redirections."""
        state = self._state
        skipped = ("heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "herestring_redirect")
        arguments = node.children_by_field_name("argument")
        followers = [c for c in node.children if c.is_named and c.type not in skipped and c not in arguments]
        stdin, state.stdin = state.stdin, None
        self._walk(followers, depth)
        state.stdin = stdin

    def take(self, node: Node, depth: int) -> list[list[Node]]:
        """Record one redirection. Returns the nodes of further words that the grammar attached to it."""
        state = self._state
        state.see(node)
        if node.type == "heredoc_redirect":
            return self._heredoc(node, depth)
        if node.type == "herestring_redirect":
            words = [child for child in node.children if child.is_named]
            self._walk(words, depth)
            groups = state.touching(words)
            state.stdin = state.words(*groups[0])[0] if groups else literal("")
            return groups[1:]
        operator = ""
        targets: list[Node] = []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.is_named:
                targets.append(child)
            elif not targets:
                operator += child.type
        self._walk(targets, depth)
        groups = state.touching(targets)
        name = state.source[groups[0][0].start_byte : groups[0][-1].end_byte] if groups else ""
        if operator in (">&", "<&") and any(sign in name for sign in "'\"\\"):
            state.doubt("bash reads the quotes behind `>&` as text, and expands what they hold")
        if groups and not _is_descriptor(operator, name):
            words = state.words(*groups[0])
            target = words[0] if len(words) == 1 else unknown(state.text_of(targets[0]))
            state.script.redirects.append(Redirect(operator, target, state.folders))
        return groups[1:]

    def _heredoc(self, node: Node, depth: int) -> list[list[Node]]:
        """Read a here-document's text. Record a doubt if bash could end it elsewhere."""
        state = self._state
        start = body = end = None
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_body":
                body = child
            elif child.type == "heredoc_end":
                end = child
            elif child.type in ("file_redirect", "herestring_redirect"):
                self.take(child, depth)
        if start is None or body is None or end is None:
            state.doubt("a here-document has no end")
            return state.touching(node.children_by_field_name("argument"))
        state.script.strings.append((body.start_byte, end.end_byte, True))
        is_tabbed = any(child.type == "<<-" for child in node.children)
        delimiter = re.sub(r"[\\'\"]", "", state.text_of(start))
        text = state.text_of(body)
        # With an escaped line break the command continues, where the grammar sees text or arguments.
        continues = state.source[start.end_byte :].partition("\n")[0].endswith("\\")
        if continues or not _ends_at(state.source, end, delimiter, is_tabbed, text):
            state.doubt("it can't be told where a here-document begins and ends")
        if state.text_of(start) == delimiter:
            self._walk(body.children, depth)
            for command in _find_hidden_commands(body, text):
                state.doubt("a here-document's text runs a command")
                # bash reads and runs it as `eval` would.
                evaluation = Invocation([literal("eval"), literal(command)], [], state.folders)
                state.script.invocations.append(evaluation)
            has_parts = any(child.type != "heredoc_content" for child in body.children)
            state.stdin = unknown(text) if has_parts else literal(text)
        else:
            state.stdin = literal(text)
        return state.touching(node.children_by_field_name("argument"))


def _find_hidden_commands(body: Node, text: str) -> Iterator[str]:
    """Yield the commands that bash runs in a here-document where the grammar sees plain text: in backquotes,
    and in `$(...)` behind the blanks at the beginning of a line.

    Where one ends is guessed: the doubt says that more may run.
    """
    parts = [part for part in body.children if part.type != "heredoc_content"]
    end = -1
    for match in _SUBSTITUTION.finditer(text):
        start = body.start_byte + match.end() - 1
        if match.end() <= end + 1 or any(part.start_byte <= start < part.end_byte for part in parts):
            continue
        command = text[match.end() :].partition("`" if match[0].endswith("`") else ")")[0]
        end = match.end() + len(command)
        yield command


def _needs_all(node: Node) -> bool:
    """Return whether this succeeds only if each of its commands did."""
    while node.type != "command":
        if node.type == "list" and any(child.type == "&&" for child in node.children):
            if not _needs_all(node.children[-1]):
                return False
        elif node.type != "redirected_statement":
            return False
        node = node.children[0]
    return True


def _is_descriptor(operator: str, target: str) -> bool:
    """Return whether `>&2` or `<&3-` names an open descriptor rather than a file."""
    return operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target) is not None


def _ends_at(source: str, end: Node, delimiter: str, is_tabbed: bool, body: str) -> bool:
    """Return whether bash, which compares whole lines, ends the here-document at the same position as the
    tree."""
    lines = body.split("\n")
    last = source[: end.end_byte].rpartition("\n")[2]
    if is_tabbed:
        lines, last = [line.lstrip("\t") for line in lines], last.lstrip("\t")
    is_whole = source[end.end_byte : end.end_byte + 1] in ("", "\n") and last == delimiter
    return is_whole and delimiter not in lines
