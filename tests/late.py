"""Modules that take 0.3 to 2 s to import: loaded by the first test that uses them, not by collecting."""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """A module, imported when it is first asked for a name.

    Where types are checked it is imported plainly:

        if TYPE_CHECKING:
            import openai
        else:
            openai = Late("openai")
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks and fixtures in everything that it collects
            raise AttributeError(name)
        return getattr(importlib.import_module(self._module), name)
