"""Fail when a type checker of a program that imports Whet would have to guess a type.

Run by `make check`: pyright's --verifytypes over the whole package, which must be complete. pyright looks for
a package where a program would find it, so source and dependencies go on PYTHONPATH.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print each name that lacks a type, and the share of those that have one."""
    path = os.pathsep.join([str(ROOT / "src"), sysconfig.get_path("purelib")])
    return max([check_package(name, path) for name in ("whet", "whet_confirm", "whet_lab")])


def check_package(name: str, path: str) -> int:
    """Print what lacks a type in one package that is found on `path`; return 1 if something does."""
    command = [sys.executable, "-m", "pyright", "--verifytypes", name, "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    report = json.loads(done.stdout)["typeCompleteness"]
    for symbol in report["symbols"]:
        if symbol["isExported"] and not (symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]):
            print(symbol["name"], "; ".join(note["message"] for note in symbol["diagnostics"]))
    print(f"{name}: types known: {report['completenessScore']:.1%} of {len(report['symbols'])} names")
    return 0 if report["completenessScore"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
