"""The browser's server is set up so that its jail needs no folder opened, and keeps nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.cli.running import invoke
from whet.app.confining import confine, server_jail
from whet.cli.mcp_servers.browser import program_folder, server_part
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, SandboxSettings


def test_the_server_is_headless_isolated_and_confined() -> None:
    part = server_part(program_folder() / "cli.js", "/usr/bin/chromium", ("*.example.com",))
    server = msgspec.convert(part, McpServerSettings)
    assert {"--headless", "--isolated"} < set(server.args) and server.confined
    assert server.openings == ("reach *.example.com",)
    assert msgspec.convert(server_part(Path("/x"), "/y", ()), McpServerSettings).openings == ("reach *",)


def test_what_every_jail_may_read_is_not_opened_for_a_server(tmp_path: Path) -> None:
    with closing(confine(Home(tmp_path / "home"), SandboxSettings())) as confinement:
        jail = server_jail(confinement, tmp_path, McpServerSettings(command="/usr/bin/env", args=("x",)))
        assert jail is None or jail.policy.unix, "Chromium makes Unix sockets of its own"
        own = tmp_path / "own" / "server.py"
        own.parent.mkdir()
        own.write_text("")
        jail = server_jail(
            confinement, tmp_path / "work", McpServerSettings(command="python3", args=(str(own),))
        )
        assert jail is None or jail.policy.may_read(own)


def test_a_failed_install_shows_the_whole_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name in ("npm", "node"):
        (programs / name).write_text(
            f"#!/bin/sh\necho 'npm error code SELF_SIGNED' {'x ' * 300} end >&2; exit 1\n"
        )
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    done = invoke("mcp", "add-browser")
    assert "installing" in done.stderr
    error = str(done.exception)
    assert "npm failed: npm error code SELF_SIGNED x" in error and "x end" in error


def test_the_download_of_a_browser_trusts_what_npm_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / ".local/lib/whet-browser/node_modules/@playwright/mcp/cli.js"
    script.parent.mkdir(parents=True)
    script.touch()
    npm = 'case "$1 $2 $3" in "config get cafile") echo /corp.pem;; *) echo null;; esac'
    node = (
        'folder="$PLAYWRIGHT_BROWSERS_PATH/chromium-1/chrome-linux"; /bin/mkdir -p "$folder"\n'
        ': > "$folder/chrome"; echo "$NODE_EXTRA_CA_CERTS,$HTTPS_PROXY" > "$HOME/seen"'
    )
    (programs := tmp_path / "bin").mkdir()
    for name, text in (("npm", npm), ("node", node)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    for variable in ("NODE_EXTRA_CA_CERTS", "HTTPS_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    for expected in ("/corp.pem,\n", "/own.pem,\n"):
        done = invoke("mcp", "add-browser", "--no-test")
        assert done.exception is None, done.output
        assert (tmp_path / "seen").read_text() == expected
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/own.pem")
