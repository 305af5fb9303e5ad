"""MCP's conformance suite, its scenarios for clients: `CONFORMANCE=.../dist/index.js python -m benchmarks
mcp-conformance`, with the npm package @modelcontextprotocol/conformance and a node of 22 or newer (NODE=...).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from benchmarks.table import Row

SCENARIOS = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
)
_TIMEOUT_S = 90


def run(_runs: int, _full: bool) -> list[Row]:
    """Run each scenario once; nothing where the suite is not there."""
    suite = os.environ.get("CONFORMANCE", "")
    if not suite:
        print("mcp-conformance: CONFORMANCE names no suite, so it is left out", file=sys.stderr)
        return []
    failed: list[str] = []
    checks = 0
    for scenario in SCENARIOS:
        passed, total = _scenario(suite, scenario)
        checks += passed
        if passed != total or not total:
            failed.append(f"{scenario}: {passed} of {total}")
    met = len(SCENARIOS) - len(failed)
    return [
        Row(
            "mcp-conformance",
            "MCP conformance suite, client scenarios (0.1.16)",
            f"{len(SCENARIOS)} of {len(SCENARIOS)}",
            f"{met} of {len(SCENARIOS)} ({checks} checks)",
            "-",
            not failed,
            "python -m benchmarks mcp-conformance",
            details=failed,
        )
    ]


def _scenario(suite: str, scenario: str) -> tuple[int, int]:
    """Give how many of its checks passed, and how many there are; a warning is no pass."""
    client = f"{sys.executable} -m benchmarks.conformance_client"
    command = [os.environ.get("NODE", "node"), suite, "client", "--command", client, "--scenario", scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    found = re.search(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings", said)
    if found is None:
        return 0, 0
    return int(found[1]), int(found[2]) + int(found[4])
