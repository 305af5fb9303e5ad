"""Translate a policy into a profile for macOS's sandbox-exec, which denies everything it does not allow.

Later rules win, so hidden and protected paths are denied after the folders that hold them are allowed. It
has not been run on a Mac yet; a test checks the profile's form.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_BASE = (
    "(version 1)",
    "(deny default)",
    "(allow process-exec)",
    "(allow process-fork)",
    "(allow process-info* (target same-sandbox))",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow pseudo-tty)",
    "(allow file-read-metadata)",
    '(allow file-read* (literal "/"))',
    '(allow file-read* file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))',
    '(allow file-read* (literal "/dev/random") (literal "/dev/urandom") (literal "/dev/fd"))',
    '(allow file-ioctl (literal "/dev/tty"))',
    "(allow ipc-posix-sem)",
    '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
)


def seatbelt_profile(policy: SandboxPolicy, scratch: Scratch) -> str:
    """Return the profile. It allows no network, not even local connections, because addresses can't be
    distinguished."""
    lines = list(_BASE)
    lines += _rule("allow file-read*", (*policy.read, policy.workspace, *policy.write, scratch.root))
    lines += _rule("allow file-write*", (policy.workspace, *policy.write, scratch.root))
    lines += _rule("deny file-read* file-write*", _without_grants(policy.hidden_paths(), policy))
    lines += _rule("deny file-write*", policy.protected_paths())
    return "\n".join(lines) + "\n"


def _without_grants(hidden: Iterable[Path], policy: SandboxPolicy) -> list[Path]:
    """Return the hidden paths, except those that contain a grant, which would be denied with them."""
    granted = (*policy.read, *policy.write)
    return [
        hidden_path for hidden_path in hidden if not any(path.is_relative_to(hidden_path) for path in granted)
    ]


def _rule(action: str, paths: Iterable[Path]) -> list[str]:
    return [f"({action} (subpath {_quote(str(path))}))" for path in dict.fromkeys(paths)]


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
