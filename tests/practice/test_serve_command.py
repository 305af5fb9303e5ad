"""`whet practice serve` as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from tests.support import output_of, within
from whet.contract.errors import ConfigError
from whet_lab.commands.practice import practice


@pytest.mark.slow
def test_it_serves_until_it_is_told_to_stop(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"replies": [{"text": "hi"}]}')
    line = [
        sys.executable,
        "-c",
        "from whet_lab.commands.practice import command; command()",
        "serve",
        "--port",
        "0",
    ]
    process = subprocess.Popen([*line, "--script", str(script)], stdout=subprocess.PIPE, text=True)
    try:
        lines = [within(output_of(process).readline, "a line of its greeting") for _ in range(4)]
        assert "a scripted stand-in, not a language model" in lines[0]
        url = lines[2].split()[-1]
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"scripted stand-in" in page.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_a_broken_script_is_named(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"replies": [{"txt": 1}]}')
    result = CliRunner().invoke(practice, ["serve", "--port", "0", "--script", str(script)])
    assert isinstance(result.exception, ConfigError)
    assert "txt" in result.exception.message
