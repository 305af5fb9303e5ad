"""What may hold commands on this machine, and what does: names and words, nothing is tried out."""

from __future__ import annotations

from typing import Literal

import msgspec

EngineName = Literal["bubblewrap", "landlock", "seatbelt", "container", "ssh", "none"]


class Engine(msgspec.Struct, frozen=True):
    """What holds: bubblewrap by its `program`; Landlock of version `abi`, with mounts, processes and a
    network of its own where `namespaces`."""

    name: EngineName
    program: str = ""
    abi: int = 0
    namespaces: bool = False

    @property
    def own_temporary(self) -> bool:
        """Whether /tmp, by its name, is the session's own there."""
        return self.own_network or self.name == "container"

    @property
    def own_network(self) -> bool:
        """Whether a jail has a network of its own, so that sockets in it lead nowhere else."""
        return self.name == "bubblewrap" or self.namespaces


class EngineStatus(msgspec.Struct, frozen=True):
    """What holds: `name` "none" is nothing but the gate's reading. `line` is for a person; `tried` says why
    each better engine does not hold."""

    name: EngineName
    line: str
    engine: Engine = Engine("none")
    tried: tuple[tuple[str, str], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether commands are confined."""
        return self.name != "none"
