"""The commands of this program that one session may see: those of its person.

Ids of other people's background processes are unknown here. The program's own interfaces, such as /jobs of a
terminal and the owner's page, read all of them from `Processes`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from whet.tools.process import Process, Processes
from whet.tools.spawn import ProcessSpec

if TYPE_CHECKING:
    from whet.tools.toolsets.terminal import SharedProcesses


class SessionProcesses:
    """The commands that a session starts, and the background ones of its person's `sessions`."""

    def __init__(self, processes: Processes, session_id: str, sessions: Collection[str] = ()) -> None:
        self._processes = processes
        self._session_id = session_id
        self._sessions = frozenset((session_id, *sessions))

    def start(self, command: ProcessSpec) -> Process:
        """Start a command of the session. Raises BadInput if the system can't accept it, and ToolError."""
        return self._processes.start(msgspec.structs.replace(command, session_id=self._session_id))

    def publish(self, process: Process) -> str:
        """Assign a process an id for the model, and drop the person's oldest finished ones."""
        return self._processes.publish(process, self._sessions)

    def check_room(self) -> None:
        """Raise ToolError if too many background processes of the person are running."""
        self._processes.check_room(self._sessions)

    def get(self, process_id: str) -> Process | None:
        """Return a background process of the person, or None."""
        process = self._processes.get(process_id)
        return process if process is not None and process.command.session_id in self._sessions else None

    def list_background(self) -> list[Process]:
        """Return the person's background processes, oldest first."""
        return self._processes.list_background(self._sessions)

    def forget(self, process: Process) -> None:
        """Forget a process. One that has not exited yet is held until the program ends."""
        self._processes.forget(process)


async def open_session_processes(shared: SharedProcesses, session_id: str) -> SessionProcesses:
    """Return the commands that a session may see now, creating the program's process table if necessary."""
    processes = shared.get()
    others = {process.command.session_id for process in processes.list_background()} - {session_id}
    find = shared.find_sessions_of_person
    sessions = await find(session_id, others) if others and find is not None else ()
    return SessionProcesses(processes, session_id, sessions)
