"""Find syntax that bash reads in another way than the grammar of tree-sitter-bash.

The grammar takes `[ ... ]` for syntax of its own, pairs braces inside `${...}`, and lets quotes quote in
arithmetic. For bash, `[` is a program, so that `[ a || b ]` runs b; the first `}` ends `${x#{}`; and quotes
in `(( '$(x)' ))` quote nothing. Source: bash's manual, "Shell Grammar", "Shell Parameter Expansion" and
"Shell Arithmetic".
"""

from __future__ import annotations

from tree_sitter import Node

from whet.late import late_pattern

AMBIGUOUS = frozenset(
    ("arithmetic_expansion", "c_style_for_statement", "compound_statement", "expansion", "test_command")
)
"""The nodes that the functions here judge; others hold neither."""
_STRINGS = frozenset(("string", "raw_string", "ansi_c_string"))
_EXPANSIONS = frozenset(("expansion", "simple_expansion", "command_substitution", "arithmetic_expansion"))
_ENDS_COMMAND = late_pattern(r"[\n;&|<>()]")
_ESCAPED = late_pattern(r"\\[^\n]")
# Arithmetic that computes nothing from a variable, whose value may hold a command.
_NUMBERS = late_pattern(r"\$?\(\([\d\s+*/%()<>=!&|^~?:,-]*\)\)")
# The name, and a part of its value that is computed from numbers alone, or a form that runs nothing.
_PLAIN_PART = late_pattern(r"\$\{[\w@*]+(?::\s*-?\d+(?:\s*:\s*-?\d+)?|@[QULuAaKk])\}")


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


def may_run_values(node: Node, text: str) -> bool:
    """Return whether bash may run a command in a variable's value to evaluate a node."""
    if node.type == "expansion":
        is_part = any(child.type in (":", "@") for child in node.children)
        return is_part and _PLAIN_PART.fullmatch(text) is None
    return _is_arithmetic(node, text) and _NUMBERS.fullmatch(text) is None


def find_ambiguity(node: Node, text: str) -> str:
    """Return why bash may run something else than the grammar shows in a node, or an empty string."""
    if node.type == "expansion":
        inside = _text_outside(node, text, _EXPANSIONS)
        return "braces stand inside `${...}`" if "{" in inside or "}" in inside else ""
    if _is_arithmetic(node, text):
        return "quotes stand inside arithmetic" if any(sign in text for sign in "'`\\") else ""
    if node.type == "test_command" and not text.startswith("[["):
        inside = _ESCAPED.sub("", _text_outside(node, text, _STRINGS | _EXPANSIONS))
        return "`[` and `]` enclose more than one command" if _ENDS_COMMAND.search(inside) else ""
    return ""


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
