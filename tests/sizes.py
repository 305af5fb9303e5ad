"""Fail when a module, class or function outgrows its limit, or a public class name stands for two classes.

Run by `make check`. Limits: module 450 lines, `agent/loop.py` 150, class 225 lines and 15 public methods,
function 60 lines. Tables have no limit of length: a function that only returns a literal or what calls with
literals declare, a class that only has fields, and a module that only declares (imports, constants, such
classes and functions). The shape decides; no list names exceptions. Classes and functions are measured
without their docstrings, so that no limit makes a docstring shorter than it should be. A file of tests has
500 lines at most, too.
"""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
FORBIDDEN = {"utils", "common", "manager", "misc"}
MAX_MODULE_LINES = 450
MAX_LOOP_LINES = 150
MAX_CLASS_LINES = 225
MAX_PUBLIC_METHODS = 15
MAX_FUNCTION_LINES = 60
MAX_TEST_LINES = 500
_DECLARING = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Starred,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.UnaryOp,
    ast.BinOp,
    ast.Call,
    ast.keyword,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def main() -> int:
    """Print each offence and a count of modules per layer."""
    offences: list[str] = []
    layers: dict[str, int] = {}
    classes: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        tree = ast.parse(text := path.read_text("utf-8"))
        offences += find_offences(str(name), text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = classes.setdefault(node.name, str(name))
                if other != str(name):
                    offences.append(f"{name}:{node.lineno} {node.name} is a class in {other} already")
        layer = name.parts[1] if name.parts[0] == "whet" else name.parts[0]
        layers[layer] = layers.get(layer, 0) + 1
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        lines = path.read_text("utf-8").count("\n")
        if lines > MAX_TEST_LINES:
            offences.append(f"{path.relative_to(SOURCE.parents[1])}: {lines} lines, limit {MAX_TEST_LINES}")
    print("modules:", sum(layers.values()), " ".join(f"{k}={v}" for k, v in sorted(layers.items())))
    for offence in offences:
        print(offence)
    return 1 if offences else 0


def find_offences(name: str, text: str) -> list[str]:
    """Return the limits that a module passes. `name` is its path below `src`."""
    offences: list[str] = []
    tree = ast.parse(text)
    lines = text.count("\n")
    limit = MAX_LOOP_LINES if name == "whet/agent/loop.py" else MAX_MODULE_LINES
    if lines > limit and not all(map(_is_declaration, tree.body)):
        offences.append(f"{name}: {lines} lines, limit {limit}")
    if Path(name).stem in FORBIDDEN:
        offences.append(f"{name}: a name that says nothing")
    if not ast.get_docstring(tree):
        offences.append(f"{name}: no module docstring")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = _count_code_lines(node)
            if length > MAX_FUNCTION_LINES and not _is_table(node):
                offences.append(
                    f"{name}:{node.lineno} {node.name}: {length} lines, limit {MAX_FUNCTION_LINES}"
                )
        elif isinstance(node, ast.ClassDef):
            offences += [f"{name}:{node.lineno} {node.name}: {problem}" for problem in _measure_class(node)]
    return offences


def _is_declaration(node: ast.stmt) -> bool:
    """Return whether a statement of a module only declares: it imports, names a value, lists fields, or is a
    table."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.Expr():
            return isinstance(node.value, ast.Constant)
        case ast.Assign() | ast.AnnAssign():
            return node.value is None or _only_declares(node.value)
        case ast.ClassDef():
            return not any(
                isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body
            ) and (all(map(_is_declaration, node.body)))
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return all(map(_is_declaration, node.body))
        case ast.FunctionDef():
            return _is_table(node)
        case _:
            return False


def _has_only_fields(node: ast.ClassDef) -> bool:
    """Return whether a class has no methods and its fields only declare."""
    return all(_is_declaration(item) and not isinstance(item, ast.FunctionDef) for item in node.body)


def _is_table(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function's body, after its docstring, is one `return` of a literal or of calls that
    declare rows."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    if len(statements) != 1 or not isinstance(statements[0], ast.Return):
        return False
    value = statements[0].value
    return value is not None and _only_declares(value)


def _only_declares(value: ast.expr) -> bool:
    """Return whether an expression holds only literals, names and calls of them: no conditions, loops,
    comparisons or functions."""
    return all(isinstance(node, _DECLARING) for node in ast.walk(value))


def _measure_class(node: ast.ClassDef) -> list[str]:
    """Return the limits of a class that this one passes."""
    lines = _count_code_lines(node)
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = sum(not function.name.startswith("_") for function in functions)
    is_too_long = lines > MAX_CLASS_LINES and not _has_only_fields(node)
    problems = [f"{lines} lines, limit {MAX_CLASS_LINES}"] if is_too_long else []
    if public > MAX_PUBLIC_METHODS:
        problems.append(f"{public} public methods, limit {MAX_PUBLIC_METHODS}")
    return problems


def _count_code_lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a class or function without the docstrings in it."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for inner in ast.walk(node):
        if isinstance(inner, definitions) and ast.get_docstring(inner):
            docstring = inner.body[0]
            lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


if __name__ == "__main__":
    sys.exit(main())
