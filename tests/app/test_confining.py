"""What a confined MCP server may read of what it was installed with."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from whet.app.confining import confine, guards_links, server_jail
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, SandboxSettings


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose programs were put where no list of places has them."""
    home = tmp_path / "ann"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def file(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def readable(person: Path, server: McpServerSettings, *paths: Path) -> list[bool]:
    work = person / "work"
    work.mkdir(exist_ok=True)
    # Where no test before has tried the sandbox out, it starts one here.
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings())) as confinement:
        jail = server_jail(confinement, work, server)
        assert jail is not None
        return [jail.policy.may_read(path.resolve()) for path in paths]


def test_a_sandbox_that_was_not_tried_out_yet_guards_links_if_it_works(person: Path) -> None:
    work = person / "work"
    work.mkdir()
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings())) as confinement:
        is_guarded = guards_links(confinement, work)
        assert is_guarded == confinement.status().holds
    with contextlib.closing(confine(Home(person / ".whet"), SandboxSettings(mode="off"))) as confinement:
        assert not guards_links(confinement, work)


def test_a_program_of_npm_has_its_package_its_neighbours_and_the_link_that_names_it(person: Path) -> None:
    modules = person / "servers" / "node_modules"
    main = file(modules / "@some" / "server" / "dist" / "index.js")
    package = file(modules / "@some" / "server" / "package.json")
    other, secret = file(modules / "zod" / "index.js"), file(person / "servers" / ".env")
    link = modules / ".bin" / "server"
    link.parent.mkdir()
    link.symlink_to("../@some/server/dist/index.js")
    server = McpServerSettings(command=str(link))
    assert readable(person, server, main, package, other, modules / ".bin", secret) == [True] * 4 + [False]


def test_a_script_has_its_project_and_a_python_its_environment(person: Path) -> None:
    script = file(person / "proj" / "build" / "index.js")
    modules = file(person / "proj" / "node_modules" / "zod" / "index.js")
    file(person / "proj" / "package.json")
    venv = person / "env"
    program, library = file(venv / "bin" / "serve"), file(venv / "lib" / "site.py")
    file(venv / "pyvenv.cfg")
    interpreter = file(person / "pythons" / "bin" / "python3.13")
    (venv / "bin" / "python").symlink_to(interpreter)
    stdlib, private = file(person / "pythons" / "lib" / "os.py"), file(person / "letters.txt")
    node = McpServerSettings(command="node", args=(str(script),))
    python = McpServerSettings(command=str(program))
    assert readable(person, node, script, modules, library, private) == [True, True, False, False]
    assert readable(person, python, library, stdlib, private) == [True, True, False]


def test_a_home_that_is_a_project_or_holds_the_script_is_not_opened(person: Path) -> None:
    script, private = file(person / "server.py"), file(person / "letters.txt")
    file(person / "package.json")
    server = McpServerSettings(command="python3", args=(str(script),))
    assert readable(person, server, script, private) == [True, False]
