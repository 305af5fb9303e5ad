"""A jail of one engine around a folder, and a command in it, for tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.sandbox.engines import EngineCase
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import default_policy
from whet.tools.shell import command_environment


@contextmanager
def made_jail(case: EngineCase, folder: Path) -> Generator[Jail]:
    workspace = folder / "ws"
    workspace.mkdir(exist_ok=True)
    scratch = Scratch()
    jail = Jail(
        JailPlan(case.engine(), default_policy(workspace, folder / "whet", os.environ), scratch, Path.home())
    )
    yield jail
    jail.close()
    scratch.close()


def run(jail: Jail, text: str, folder: Path | None = None) -> tuple[int, str]:
    """Run a line of the shell, in the workspace if no folder is given; gives its exit code and what it
    printed."""
    inside = jail.environment(command_environment(os.environ))
    return jail.run(JailedCommand(["bash", "-c", text], inside, folder or jail.policy.workspace), 60)
