"""A deny rule holds for each hard link of its file, also in a folder that a person opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import run
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.path_rules import read_path_rules
from whet.sandbox.policy import Opening
from whet.sandbox.status import EngineStatus
from whet.sandbox.system_folders import PolicyAdditions

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


class _OneEngine(Confinement):
    """A confinement that uses a given engine."""

    def use(self, case: EngineCase) -> None:
        self._case = case.status()

    def status(self) -> EngineStatus:
        return self._case

    @property
    def known_status(self) -> EngineStatus:
        return self._case


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    case: EngineCase = request.param
    return case


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "ws"
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets/s").write_text("the secret\n")
    (tmp_path / "shared/deep").mkdir(parents=True)
    (tmp_path / "shared/other").write_text("other\n")
    os.link(folder / "secrets/s", tmp_path / "shared/deep/hl")
    yield folder


def _printed(case: EngineCase, workspace: Path, additions: PolicyAdditions, *openings: Opening) -> str:
    """Return what a command prints of the folder beside the workspace."""
    rules = read_path_rules(["read(secrets/*)"])
    settings = ConfinementSettings("auto", workspace.parent / "whet", additions, rules=rules)
    confinement = _OneEngine(settings)
    confinement.use(case)
    confinement.add_openings("s1", openings)
    try:
        jail = confinement.jail(workspace, "s1")
        assert jail is not None
        folder = workspace.parent / "shared"
        return run(jail, f"python3 -c \"print(open('{folder}/de'+'ep/hl').read())\"; cat {folder}/other")[1]
    finally:
        confinement.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_closed_file_is_not_read_by_a_link_in_a_folder_of_the_settings(
    engine: EngineCase, workspace: Path, kind: str
) -> None:
    shared = str(workspace.parent / "shared")
    additions = PolicyAdditions(read=(shared,)) if kind == "read" else PolicyAdditions(write=(shared,))
    printed = _printed(engine, workspace, additions)
    assert "the secret" not in printed and printed.endswith("other\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_closed_file_is_not_read_by_a_link_in_a_folder_that_a_person_opened(
    engine: EngineCase, workspace: Path, kind: str
) -> None:
    opening = Opening(kind, str(workspace.parent / "shared"))  # type: ignore[arg-type]
    printed = _printed(engine, workspace, PolicyAdditions(), opening)
    assert "the secret" not in printed and printed.endswith("other\n")
