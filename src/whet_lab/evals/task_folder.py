"""Prepares the folder in which a task and its commands run, and stores results."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import msgspec

from whet.app.confining import confine
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.contract.errors import ConfigError
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import JailedCommand
from whet_lab.evals.own_tasks import OwnTask

OUTPUT_CHARS = 400
_SHELL_TIMEOUT_S = 300.0
_TIMED_OUT = 124


async def prepare_folder(task: OwnTask, origin: Path, folder: Path) -> None:
    """Create the folder of a task from its files, which are relative to `origin`, and run the set-up.

    Raises ConfigError if the set-up fails.
    """
    await asyncio.to_thread(_copy, origin / task.files if task.files else None, folder)
    if task.setup:
        code, output = await run_bash(task.setup, folder)
        if code:
            raise ConfigError(
                f"the set-up of {task.name} exited {code}: {output[-OUTPUT_CHARS:]}",
                hint="run it by hand in its folder",
            )


async def verify(task: OwnTask, folder: Path, settings: SandboxSettings, home: Home) -> tuple[bool, str]:
    """Run the task's verifier. Returns whether it accepted the result, and the end of its output if not.

    It runs code that the agent wrote, so it has the same sandbox as the agent's own commands.
    """
    with closing(confine(home, settings)) as confinement:
        code, output = await _run_confined(task.verify, folder, confinement)
    return code == 0, output[-OUTPUT_CHARS:] if code else ""


async def _run_confined(command: str, folder: Path, confinement: Confinement) -> tuple[int, str]:
    jail = await asyncio.to_thread(confinement.jail, folder)
    if jail is None:
        return await run_bash(command, folder)
    jailed_command = JailedCommand(["bash", "-c", command], jail.environment(os.environ), folder)
    code, output = await asyncio.to_thread(jail.run, jailed_command, _SHELL_TIMEOUT_S)
    return code, f"not done after {_SHELL_TIMEOUT_S:.0f} s" if code == _TIMED_OUT else output.strip()


async def run_bash(command: str, folder: Path) -> tuple[int, str]:
    """Run the person's command in a folder. Returns the exit code (124 after a timeout) and the output."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SHELL_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, 9)
        await process.wait()
        return _TIMED_OUT, f"not done after {_SHELL_TIMEOUT_S:.0f} s"
    return process.returncode or 0, output.decode("utf-8", "replace").strip()


def _copy(files: Path | None, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if files is None:
        folder.mkdir(parents=True)
    else:
        shutil.copytree(files, folder, symlinks=True)


def claim_folder(folder: Path, settings: object, other_contents: str) -> None:
    """Create the folder for runs with these settings.

    Raises ConfigError if it holds runs with other settings, which `other_contents` names in the error.
    """
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    path, content = folder / "settings.json", msgspec.json.encode(settings)
    if path.exists() and path.read_bytes() != content:
        raise ConfigError(
            f"{folder} holds {other_contents}",
            hint="name another folder with --out, or start over with --fresh",
        )
    path.write_bytes(content)


def store_result(path: Path, run: object) -> None:
    """Store a finished run as JSON, completely or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(run))
    part.replace(path)
