"""The jail of an MCP server that a person configured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.app.confining import confine
from whet.app.server_jails import own_server_jail, server_folder
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, SandboxSettings
from whet.contract.errors import BadInput
from whet.mcp.stdio import ServerJail
from whet.sandbox.confinement import Confinement
from whet.sandbox.engine import probe
from whet.sandbox.policy import EVERYWHERE, PRIVATE_TOO, Opening

pytestmark = pytest.mark.skipif(not probe().holds, reason="nothing confines here")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home; a package index with a login and one without."""
    home = tmp_path / "ann"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "PIP_INDEX_URL",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "npm_config_registry",
        "PIP_CONFIG_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def confinement(person: Path) -> Iterator[Confinement]:
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings())) as confinement:
        yield confinement


def jailed(confinement: Confinement, person: Path, server: McpServerSettings) -> ServerJail:
    jail = own_server_jail(confinement, Home(person / ".whet"), "one", server)
    assert jail is not None
    return jail


def test_it_may_change_its_folder_alone_and_reach_every_host(confinement: Confinement, person: Path) -> None:
    policy = jailed(confinement, person, McpServerSettings(command="npx")).jail.policy
    folder = server_folder(Home(person / ".whet"), "one").resolve()
    assert policy.workspace == folder and policy.write == () and policy.hosts == (EVERYWHERE,)
    assert folder == (person / ".whet-servers" / "one").resolve()
    assert not policy.may_read(person.resolve()) and not policy.may_read(
        (person / ".whet" / ".env").resolve()
    )
    assert policy.may_write(folder / ".npm" / "x")


def test_settings_narrow_what_it_may_reach(confinement: Confinement, person: Path) -> None:
    closed = McpServerSettings(command="npx", network=False)
    narrow = McpServerSettings(command="npx", openings=("reach api.example.com",))
    assert jailed(confinement, person, closed).jail.policy.hosts == ()
    assert jailed(confinement, person, narrow).jail.policy.hosts == ("api.example.com", PRIVATE_TOO)
    with pytest.raises(BadInput):
        jailed(confinement, person, McpServerSettings(command="npx", openings=("all",)))
    free = McpServerSettings(command="npx", confined=False)
    assert own_server_jail(confinement, Home(person / ".whet"), "one", free) is None


def test_a_folder_on_its_command_line_may_be_read(confinement: Confinement, person: Path) -> None:
    notes = person / "notes"
    notes.mkdir()
    policy = jailed(confinement, person, McpServerSettings(command="npx", args=(str(notes),))).jail.policy
    assert policy.may_read(notes.resolve() / "x") and not policy.may_write(notes.resolve() / "x")


@pytest.mark.parametrize(
    "address",
    [
        "https://ann:hunter2@mirror.example/simple",
        "https://hunter2@mirror.example/simple",
        "https://:hunter2@mirror.example/simple",
        "https://mirror.example/simple?key=hunter2",
        "https://mirror.example/simple https://hunter2@mirror.example/more",
    ],
)
def test_it_gets_certificates_and_indexes_but_no_logins(
    confinement: Confinement, person: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    authority = person / "authority.pem"
    authority.write_text("x")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setenv("UV_INDEX_URL", address)
    (person / ".npmrc").write_text(
        "registry=https://mirror.example/npm/\n//mirror.example/npm/:_authToken=hunter2\n"
    )
    jail = jailed(confinement, person, McpServerSettings(command="npx"))
    assert jail.variables["SSL_CERT_FILE"] == str(authority)
    assert jail.jail.policy.may_read(authority.resolve())
    assert jail.variables["npm_config_registry"] == "https://mirror.example/npm/"
    assert "hunter2" not in str(jail.variables)


def test_what_the_path_leads_to_is_found_by_its_home(
    confinement: Confinement, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = person / ".pyenv" / "shims"
    shims.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{shims}:/usr/bin:/bin")
    folder = server_folder(Home(person / ".whet"), "one")
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings())) as own:
        jailed(own, person, McpServerSettings(command="uvx"))
    assert (folder / ".pyenv").readlink() == (person / ".pyenv").resolve()


def test_what_a_server_left_in_its_folder_is_neither_replaced_nor_followed(
    confinement: Confinement, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person / ".pyenv" / "shims").mkdir(parents=True)
    (person / "elsewhere").mkdir()
    monkeypatch.setenv("PATH", f"{person / '.pyenv' / 'shims'}:/usr/bin:/bin")
    folder = server_folder(Home(person / ".whet"), "one")
    folder.mkdir(parents=True)
    (folder / ".pyenv").symlink_to(person / "elsewhere")
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings())) as own:
        jailed(own, person, McpServerSettings(command="uvx"))
    assert (folder / ".pyenv").readlink() == person / "elsewhere"
    assert list((person / "elsewhere").iterdir()) == []


def test_the_words_for_every_host_say_that_this_machine_is_none() -> None:
    assert Opening("reach", EVERYWHERE).words == "reach any host but this machine"
