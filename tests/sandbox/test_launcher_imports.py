"""What the launcher imports: every sandbox's start pays for it, in an interpreter without anything loaded."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import whet.sandbox
from whet.sandbox.setup import LAUNCHER_IMPORTS

_SLOW = {"collections", "contextlib", "enum", "functools", "json", "re", "signal", "socket", "typing"}


def test_the_launcher_imports_no_slow_modules_of_the_standard_library() -> None:
    folder = Path(whet.sandbox.__path__[0])
    names: set[str] = set()
    for module in (*LAUNCHER_IMPORTS, "launcher"):
        for statement in ast.parse((folder / f"{module}.py").read_text()).body:
            if isinstance(statement, ast.Import):
                names |= {alias.name for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom) and not (statement.module or "").startswith("whet."):
                names.add(statement.module or "")
    code = "import sys\n" + "".join(f"import {name}\n" for name in sorted(names - {"__future__"}))
    code += "loaded = set(sys.modules)\nimport json\nprint(json.dumps(sorted(loaded)))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert not _SLOW & set(json.loads(loaded))
