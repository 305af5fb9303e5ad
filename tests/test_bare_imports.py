"""A bare installation runs every command: what an extra brings is imported only behind a check for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import whet
from tests.imports import ImportGraph

SOURCE = Path(whet.__file__).parent.parent
PROJECT = SOURCE.parent / "pyproject.toml"
FILES = {
    "whet/__init__.py": "",
    "whet/main.py": "COMMANDS = {'serve': 'whet.serve:serve'}\n",
    "whet/serve.py": "import httpx2\nfrom whet.notify import groups\n",
    "whet/notify.py": "from whet.slack import Answer\n",
    "whet/slack.py": "import msgspec\n",
}
PROOF = """
def claim(is_team):
    if is_team:
        from whet import slack
"""
TYPES = """
if TYPE_CHECKING:
    from whet import slack
try:
    import whet.slack
except ImportError:
    pass
"""
SPEC = """
def serve():
    if find_spec("webauthn") is None:
        raise ConfigError("not installed")
    from whet import slack
"""


EXTRAS = """
[project]
name = "x"
dependencies = ["msgspec>=0.20", "httpx2>=2.10"]
[project.optional-dependencies]
passkeys = ["webauthn>=3.0"]
slack = ["httpx2[ws]>=2.10"]
"""
PASSKEYS = """
def sign():
    try:
        import webauthn
    except ImportError:
        raise
"""


def faults_of_extras(tmp_path: Path, **changed: str) -> list[str]:
    faults(tmp_path, **changed)
    (tmp_path / "pyproject.toml").write_text(EXTRAS, "utf-8")
    return sorted(ImportGraph(tmp_path, tmp_path / "pyproject.toml").faults_of_extras())


def test_each_package_belongs_to_an_extra_and_each_extra_to_a_package(tmp_path: Path) -> None:
    sockets = "from httpx2 import websockets\n"
    assert faults_of_extras(tmp_path, serve=PASSKEYS, slack=sockets) == []
    assert faults_of_extras(tmp_path, slack=sockets) == ["no module imports a package of the extra passkeys"]


def test_a_checked_import_that_no_extra_brings_is_a_fault(tmp_path: Path) -> None:
    slack = "from httpx2 import websockets\n" + PASSKEYS.replace("webauthn", "jsonschema")
    assert faults_of_extras(tmp_path, serve=PASSKEYS, slack=slack) == [
        "whet.slack:5 imports jsonschema, which neither whet nor an extra of it depends on"
    ]


def test_a_module_that_needs_two_extras_at_once_is_a_fault(tmp_path: Path) -> None:
    slack = "import webauthn\nfrom httpx2 import websockets\n"
    (serve, *others) = faults_of_extras(tmp_path, slack=slack)
    assert serve == "whet.notify needs webauthn and wsproto, which no extra brings together"
    assert [line.split()[0] for line in others] == ["whet.serve", "whet.slack"]


def faults(tmp_path: Path, **changed: str) -> list[str]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(changed.get(path.stem, text), "utf-8")
    return sorted(ImportGraph(tmp_path, PROJECT).faults())


@pytest.mark.slow
def test_nothing_imports_an_extras_package_without_a_check_for_it() -> None:
    graph = ImportGraph(SOURCE, PROJECT)
    assert [*graph.faults(), *graph.faults_of_extras()] == []


def test_an_import_by_a_formatted_name_needs_a_check_for_each_module_of_the_folder(tmp_path: Path) -> None:
    load = 'import importlib\n\ndef load(kind):\n    return importlib.import_module(f"whet.{kind}")\n'
    assert any(
        "main:4 imports whet.slack" in fault
        for fault in faults(tmp_path, main=load, slack="import slack_bolt\n")
    )
    lines = (
        load.replace("    return", "    try:\n        return") + "    except ImportError:\n        raise\n"
    )
    assert not any("main:" in fault for fault in faults(tmp_path, main=lines, slack="import slack_bolt\n"))


def test_a_tree_that_imports_declared_packages_only_has_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


@pytest.mark.parametrize(
    "line", ["import webauthn", "from httpx2 import websockets", "import httpx2.websockets"]
)
def test_an_extras_package_behind_a_command_is_a_fault_at_the_command(tmp_path: Path, line: str) -> None:
    (fault,) = faults(tmp_path, slack=line)
    assert fault.startswith("whet.main:1 imports whet.serve -> whet.notify -> whet.slack -> ")


def test_a_command_that_no_table_names_is_a_fault_too(tmp_path: Path) -> None:
    assert faults(tmp_path, main="", slack="import jwt") == [
        "whet.serve, which no module imports, needs jwt: whet.notify -> whet.slack -> jwt"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def notify():\n    from whet import slack\n",
        "def notify():\n    try:\n        from whet import slack\n    except OSError:\n        pass\n",
        PROOF,
    ],
)
def test_a_late_import_without_a_check_is_a_fault(tmp_path: Path, text: str) -> None:
    (fault,) = faults(tmp_path, notify=text, slack="import webauthn")
    assert fault.startswith("whet.notify:") and fault.endswith("without a check for webauthn")


def test_a_late_import_of_the_package_without_a_check_is_a_fault(tmp_path: Path) -> None:
    by_name = 'def notify():\n    return __import__("webauthn")\n'
    assert faults(tmp_path, notify=by_name) == ["whet.notify:2 imports webauthn without a check for webauthn"]
    text = "def notify():\n    import webauthn\n"
    assert faults(tmp_path, notify=text) == ["whet.notify:2 imports webauthn without a check for webauthn"]


@pytest.mark.parametrize(
    "text",
    [
        "def notify():\n    try:\n        from whet import slack\n    except ImportError:\n        raise\n",
        "def notify():\n    with needs_driver():\n        from whet import slack\n",
        TYPES,
        SPEC,
    ],
)
def test_a_late_import_behind_a_check_is_no_fault(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, notify=text, slack="import webauthn") == []


def test_an_open_team_database_proves_that_its_driver_is_there(tmp_path: Path) -> None:
    assert faults(tmp_path, notify=PROOF, slack="import psycopg") == []
