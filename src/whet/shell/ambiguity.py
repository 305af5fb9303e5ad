"""Find syntax that bash reads in another way than the grammar of tree-sitter-bash.

The grammar takes `[ ... ]` for syntax of its own, pairs braces inside `${...}`, and lets quotes quote in
arithmetic. For bash, `[` is a program, so that `[ a || b ]` runs b; the first `}` ends `${x#{}`; and quotes
in `(( '$(x)' ))` quote nothing. Source: bash's manual, "Shell Grammar", "Shell Parameter Expansion" and
"Shell Arithmetic".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from whet.late import late_pattern

AMBIGUOUS = frozenset(
    ("arithmetic_expansion", "c_style_for_statement", "compound_statement", "expansion", "test_command")
)
"""The kinds of nodes that `find_node_ambiguity` judges."""
_MAX_CHECKS = 2_000
# bash reads `r\<newline>m` as the word `rm`, the grammar as two words.
_JOINED_LINES = late_pattern(r"(?<![\s\\])\\(?:\\\\)*\n(?=\S)")
# A backslash alone on its line joins the next line to nothing; the grammar may join it to the previous one.
_JOINED_TO_NOTHING = late_pattern(r"(?:\A|(?<=\n))[ \t]*\\\n")
# The grammar may skip an escaped blank, which is a part of a word for bash: `ls \ # c; rm x` runs rm.
_ESCAPED_BLANK = late_pattern(r"(?<!\\)(?:\\\\)*\\[ \t]")
# `{name}<file` sets a variable to a number; for the grammar it is a word and a redirection.
_NAMED_DESCRIPTOR = late_pattern(r"\{\w+(?:\[[^\]]*\])?\}[<>]")
_QUOTED = frozenset(("raw_string", "string", "string_content", "heredoc_body", "heredoc_content"))
_READ_ELSEWHERE = frozenset(("comment", "heredoc_body", "heredoc_content", "heredoc_start", "heredoc_end"))
# The beginning of a substitution in text that the grammar left as it is.
_SUBSTITUTION = late_pattern(r"`|[$<>]\(")
_STRINGS = frozenset(("string", "raw_string", "ansi_c_string"))
_EXPANSIONS = frozenset(("expansion", "simple_expansion", "command_substitution", "arithmetic_expansion"))
_ENDS_COMMAND = late_pattern(r"[\n;&|<>()]")
_ESCAPED = late_pattern(r"\\[^\n]")


def find_ambiguities(root: Node, text: str) -> Iterator[str]:
    """Yield why bash may run something else than the tree of a whole text shows."""
    if "\\\n" in text:
        yield from _find_joined_lines(root, text)
    if ("\\ " in text or "\\\t" in text) and _skips_escaped_blank(root, text):
        yield "it can't be told which word an escaped blank belongs to"
    if "}" in text and _NAMED_DESCRIPTOR.search(text):
        yield "a redirection sets a variable"
    may_substitute = "(" in text or "`" in text
    starts = list(islice(_SUBSTITUTION.finditer(text), _MAX_CHECKS + 1)) if may_substitute else []
    if len(starts) > _MAX_CHECKS or any(_hides_command(root, text, match.start()) for match in starts):
        yield "a command stands where the shell syntax can't be read"


def _find_joined_lines(root: Node, text: str) -> Iterator[str]:
    if any(_splits_word(root, match.start()) for match in _JOINED_LINES.finditer(text)):
        yield "a line break stands inside a word"
    if any(_splits_word(root, match.end() - 2) for match in _JOINED_TO_NOTHING.finditer(text)):
        yield "a line holds nothing but a backslash"


def _skips_escaped_blank(root: Node, text: str) -> bool:
    """Return whether the grammar skips an escaped blank, or there are too many to check."""
    ends = [match.end() for match in islice(_ESCAPED_BLANK.finditer(text), _MAX_CHECKS + 1)]
    nodes = [root.descendant_for_byte_range(end - 2, end) for end in ends[:_MAX_CHECKS]]
    is_skipped = any(node is None or (node.child_count and node.type not in _QUOTED) for node in nodes)
    return is_skipped or len(ends) > _MAX_CHECKS


def _hides_command(root: Node, text: str, at: int) -> bool:
    """Return whether bash runs a command that the grammar takes for text: ``${x:-`rm y`}``, a default or a
    pattern in braces. Here-documents are read elsewhere."""
    node = root.descendant_for_byte_range(at, at + (1 if text[at] == "`" else 2))
    if node is None:
        return True
    if not node.is_named or node.type in _READ_ELSEWHERE:
        return False
    if node.type in ("raw_string", "ansi_c_string"):
        return _is_in_braces(node)
    is_file_name = text[at] in "<>"  # of a substitution, which double quotes quote
    is_quoted = node.type in ("string", "string_content") and is_file_name
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return not is_quoted and (at - before) % 2 == 0


def _is_in_braces(node: Node) -> bool:
    """Return whether a quote is part of `${...}`, where it quotes nothing inside double quotes."""
    parent = node.parent
    while parent is not None and parent.type not in ("command", "program"):
        if parent.type == "expansion":
            return True
        parent = parent.parent
    return False


def _splits_word(root: Node, at: int) -> bool:
    """Return whether the line break at `at` is outside quotes and here-documents."""
    node = root.descendant_for_byte_range(at, at + 2)
    return node is None or node.type not in _QUOTED


def _is_arithmetic(node: Node, text: str) -> bool:
    """Return whether bash computes a node: `$((...))`, `((...))`, or `${name:offset}`."""
    match node.type:
        case "arithmetic_expansion" | "c_style_for_statement":
            return True
        case "compound_statement" | "test_command":
            return text.startswith("((")
        case "expansion":
            return any(child.type == ":" for child in node.children)
        case _:
            return False


def find_node_ambiguity(node: Node, text: str) -> str:
    """Return why bash may run something else than the grammar shows in a node, or an empty string."""
    if node.type == "expansion":
        if "#" in text and _holds_comment(node):  # `#` begins no comment there
            return "the grammar sees a comment inside `${...}`"
        inside = _text_outside(node, text, _EXPANSIONS)
        return "braces stand inside `${...}`" if "{" in inside or "}" in inside else ""
    if _is_arithmetic(node, text):
        return "quotes stand inside arithmetic" if any(sign in text for sign in "'`\\") else ""
    if node.type == "test_command" and not text.startswith("[["):
        inside = _ESCAPED.sub("", _text_outside(node, text, _STRINGS | _EXPANSIONS))
        return "`[` and `]` enclose more than one command" if _ENDS_COMMAND.search(inside) else ""
    return ""


def _holds_comment(node: Node) -> bool:
    return any(child.type == "comment" or _holds_comment(child) for child in node.children)


def _text_outside(node: Node, text: str, kinds: frozenset[str]) -> str:
    """Return the text between a node's first and last token, without its descendants of some kinds."""
    pieces, end = list[str](), node.children[0].end_byte
    pending = node.children[1:-1][::-1]
    while pending:
        child = pending.pop()
        if child.type in kinds:
            pieces.append(text[end - node.start_byte : child.start_byte - node.start_byte])
            end = child.end_byte
        else:
            pending += child.children[::-1]
    return "".join((*pieces, text[end - node.start_byte : node.children[-1].start_byte - node.start_byte]))
