"""The changes that tests/mutants.py tries: what becomes of a comparison, a number, a condition, a statement.

Left out is what no test should hold: texts for people, log records, types, `__repr__`.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ACCEPTED = Path(__file__).with_name("mutants_accepted.toml")

_COMPARE: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_LOGGING = re.compile(r"_?(log|logger)\.(debug|info|warning|error|exception)\(", re.I)
_OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: bytes `start` to `end` become `text`."""

    path: str
    line: int
    where: str
    change: str
    start: int
    end: int
    text: str
    first_line: int  # of the enclosing function, 0 for a module's own code

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it; lines may shift."""
        return self.path, self.where, self.change

    @property
    def id(self) -> str:
        """A short word for the key."""
        return hashlib.sha1("|".join(self.key).encode()).hexdigest()[:8]

    def applied(self, text: bytes) -> bytes:
        """Give the file's changed text."""
        return text[: self.start] + self.text.encode() + text[self.end :]

    def told(self, survived: bool, called: bool) -> str:
        """One line for the report."""
        state = "SURVIVES" if survived else "noticed "
        note = "" if called else "   (no test calls this function in its own process)"
        return f"{state} {self.id} {self.path}:{self.line} {self.where or 'module'}: {self.change}{note}"


def mutants_of(path: Path, source: Path = SOURCE) -> list[Mutant]:
    """Give every change of a file, in its order; a few of them are not Python."""
    text = path.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants: list[Mutant] = []
    count: dict[str, int] = {}
    for where, first_line, node in _code(ast.parse(text), "", 0):
        for old, new in _changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            after = new if isinstance(new, str) else ast.unparse(new)
            change = f"{ast.unparse(old)} -> {after}"
            number = count[where + change] = count.get(where + change, 0) + 1
            change += f" #{number}" if number > 1 else ""
            after = after if isinstance(new, str) else f"({after})"
            name = str(path.relative_to(source))
            mutants.append(Mutant(name, old.lineno, where, change, start, end, after, first_line))
    return mutants


def sample(area: str, count: int, seed: int, source: Path = SOURCE) -> list[Mutant]:
    """Choose mutants of an area; an edit elsewhere in the source leaves the choice as it is."""
    top = source / area
    paths = [top] if top.is_file() else sorted(top.rglob("*.py"))
    everyone = [mutant for path in paths for mutant in mutants_of(path, source)]
    everyone.sort(key=lambda mutant: hashlib.sha1(f"{seed}{mutant.id}".encode()).digest())
    left_out = accepted()
    chosen: list[Mutant] = []
    for mutant in everyone:
        if len(chosen) == count:
            break
        if mutant.key not in left_out and _is_python(mutant.applied((source / mutant.path).read_bytes())):
            chosen.append(mutant)
    return chosen


def accepted() -> dict[tuple[str, str, str], str]:
    """Give the reason of each accepted survivor, by (file, function, change)."""
    entries = tomllib.loads(ACCEPTED.read_text("utf-8")).get("accepted", [])
    return {(entry["file"], entry["function"], entry["change"]): entry["reason"] for entry in entries}


def _is_python(text: bytes) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _code(node: ast.AST, where: str, first_line: int) -> Iterator[tuple[str, int, ast.expr | ast.stmt]]:
    """Give every statement and expression that does something, with the function it stands in."""
    for child in ast.iter_child_nodes(node):
        if _is_silent(child, node):
            continue
        if isinstance(child, ast.stmt | ast.expr):
            yield where, first_line, child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{child.name}".removeprefix(".")
            begins = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            yield from _code(child, inner, 0 if isinstance(child, ast.ClassDef) else begins)
        else:
            yield from _code(child, where, first_line)


def _is_silent(node: ast.AST, parent: ast.AST) -> bool:
    """Whether a node is a type, a text for people, a log record or of the checkers only."""
    if _first_index(parent) is node:
        return True  # what becomes of it is said with its subscript
    for field in ("annotation", "returns", "decorator_list", "bases"):
        held = getattr(parent, field, None)
        if held is node or (isinstance(held, list) and node in held):
            return True
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.keyword) and node.arg in ("frozen", "kw_only", "gc")
    ):
        return True
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__repr__", "__str__") or any(
            "overload" in ast.unparse(d) for d in node.decorator_list
        )
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.ClassDef):
        return any("Protocol" in ast.unparse(base) for base in node.bases)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or bool(_LOGGING.match(ast.unparse(node)))
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "__all__" or "TypeVar(" in ast.unparse(node.value)
    return False


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | str]]:
    """Give what becomes of a node or of its condition: an expression, or the text of a statement."""
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.UnaryOp
    ):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    if (index := _first_index(node)) is not None:
        yield index, ast.Constant(1)  # where there is one item only, -1 names the same one
    for new in _expressions(node) if isinstance(node, ast.expr) else _statements(node):
        yield node, new


def _statements(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "pass"
        case ast.Continue() | ast.Break() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case _:
            pass


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, ops, right):
            for i, op in enumerate(ops):
                for other in _COMPARE[type(op)]:
                    yield ast.Compare(left, [*ops[:i], other(), *ops[i + 1 :]], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC and not (
            _is_text(left) or _is_text(right)
        ):
            yield ast.BinOp(left, _ARITHMETIC[type(op)](), right)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value) if value < 100:
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value * 2 or 1.0)
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_NAME:
            yield ast.Call(ast.Name(_OTHER_NAME[name]), node.args, node.keywords)
        case ast.Call(args=[first, second, *rest]) if type(first) is type(second) and not _is_text(first):
            yield ast.Call(node.func, [second, first, *rest], node.keywords)
        case _:
            pass


def _first_index(node: ast.AST) -> ast.Constant | None:
    """Give the 0 of `row[0]`; None for whatever else."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=int() as value) as index) if value == 0:
            return index
        case _:
            return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
