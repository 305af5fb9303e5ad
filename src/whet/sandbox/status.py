"""The engines that can confine commands, and the result of probing them. This module tries nothing out."""

from __future__ import annotations

from typing import Literal

import msgspec

EngineName = Literal["bubblewrap", "landlock", "seatbelt", "container", "ssh", "none"]


class Engine(msgspec.Struct, frozen=True):
    """An engine: bubblewrap with its `program`, or Landlock of version `abi`, which with `namespaces` has its
    own mounts, processes and network."""

    name: EngineName
    program: str = ""
    abi: int = 0
    namespaces: bool = False

    @property
    def own_temporary(self) -> bool:
        """Whether /tmp inside is the session's own folder."""
        return self.own_network or self.name == "container"

    @property
    def own_network(self) -> bool:
        """Whether a sandbox has its own network, so that sockets in it lead nowhere else."""
        return self.name == "bubblewrap" or self.namespaces


class EngineStatus(msgspec.Struct, frozen=True):
    """The engine in use. `name` "none" means that only the gate protects.

    `line` is for a person; `tried` says why each better engine does not work.
    """

    name: EngineName
    line: str
    engine: Engine = Engine("none")
    tried: tuple[tuple[str, str], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether commands are confined."""
        return self.name != "none"
