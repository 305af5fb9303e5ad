"""What counts as reading a private name from outside."""

from __future__ import annotations

import pytest

from tests.private import find_accesses, list_private_names

OWN = {"_rows", "_open", "_Row"}


@pytest.mark.parametrize(
    "code",
    ["store._rows", "store.inner._open", "make()._rows", "from whet.store import _open",
     "from tests.store._inner import rows", "monkeypatch.setattr(store, '_rows', [])",
     "monkeypatch.setattr('whet.store._open', None)", "getattr(store, '_rows')"],
)  # fmt: skip
def test_a_private_name_that_is_read_from_outside_is_an_access(code: str) -> None:
    (access,) = find_accesses(f"import os\n{code}\n", OWN)
    assert access == f"2: {code}"


@pytest.mark.parametrize(
    "code",
    ["self._rows", "super()._open()", "os._open(1)", "row._replace(id=1)", "server._serve()",
     "store.rows", "store.__dict__", "getattr(store, 'rows')", "from os import _exit"],
)  # fmt: skip
def test_names_of_the_own_class_and_of_other_packages_are_none(code: str) -> None:
    assert list(find_accesses(f"import os\n{code}\n", OWN)) == []


def test_what_a_module_and_its_classes_define_is_private_if_its_name_is() -> None:
    code = "_LIMIT: int = 1\nclass _Row:\n  def __init__(self):\n    self._rows = self.ids = 0\n"
    code += "  async def _open(self):\n    if self._other == 1 or self._more[1]: ...\n"
    assert list_private_names(code) == {"_LIMIT", "_Row", "_open", "_rows"}
