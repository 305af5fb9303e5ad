"""Commands outside of the sandbox can't read the environment of the process that starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from whet.tools.process import Processes
from whet.tools.spawn import ProcessSpec

async def main() -> None:
    processes = Processes()
    text = "for f in /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ; do tr '\\\\0' '\\\\n' < $f; done 2>&-"
    text += "; ls /proc/$PPID/fd; cat /proc/$PPID/maps; echo end"
    process = processes.start(ProcessSpec(text, Path("/"), {"PATH": os.environ["PATH"]}))
    await process.exited.wait()
    await process.wait_output_end(5)
    head, _, tail = process.output.since(0)
    print((head + tail).decode(errors="replace"))
    print(len(os.listdir("/proc/self/fd")) > 2, Path("/proc/self/mountinfo").read_text() != "")
    processes.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_commands_read_no_environment_of_whet() -> None:
    words = [sys.executable, "-c", _SCRIPT]
    if os.getuid() == 0:  # root may read every process
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to run as an ordinary person")
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SECRET": "Zq9-own-77",
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("end\n\nTrue True\n"), done.stderr
    assert "Zq9-own-77" not in done.stdout and "[stack]" not in done.stdout
