"""Add a shell command's sandbox, and explain a failure that the sandbox caused.

How a sandbox works, and who may open more, is handled elsewhere.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from whet.contract.errors import ToolError
from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.spawn import ProcessSpec

if TYPE_CHECKING:
    from whet.sandbox.confinement import Confinement
    from whet.sandbox.jail import Jail


class Confined:
    """The confinement of one call."""

    def __init__(self, confinement: Confinement, ctx: ToolContext) -> None:
        self._confinement = confinement
        self._ctx = ctx

    async def add_jail(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the command with its sandbox. A session's first command starts the sandbox, off the event
        loop."""
        status = self._confinement.known_status
        runs_free = status is not None and not status.holds  # nothing has to be started then
        jail = self._jail() if runs_free else await asyncio.to_thread(self._jail)
        if jail is None:
            self._refuse_changed()
            return spec
        return msgspec.structs.replace(spec, jail=jail, received_bytes=jail.received_bytes)

    def _refuse_changed(self) -> None:
        """Raise ToolError if other commands ran since a person decided that this one may run outside."""
        if not self._confinement.holds.is_whole(self._ctx.session_id, self._ctx.call_id):
            raise ToolError(
                "another command ran since this one was decided on, and may have changed its files",
                hint="call it again, alone",
            )

    def release(self) -> None:
        """Let the sandboxes continue that were stopped for this call."""
        self._confinement.holds.end(self._ctx.session_id, self._ctx.call_id)

    def explain_failure(self, spec: ProcessSpec, output: ToolOutput) -> ToolOutput:
        """Return the result, with a line about the sandbox if that made the command fail."""
        if spec.jail is None or not output.error_kind:
            return output
        attempt = (spec.text, output.text, spec.workdir)
        denial = self._confinement.explain(self._ctx.call_id, spec.jail, attempt)
        if denial is None:
            return output
        return msgspec.structs.replace(output, text=f"{output.text}\n{denial.line}")

    def _jail(self) -> Jail | None:
        ctx = self._ctx
        jail = self._confinement.shell_jail(ctx.workspace, ctx.session_id, ctx.call_id)
        if jail is not None:
            jail.open()
        elif self._confinement.is_local and self._confinement.status().holds:
            from whet.sandbox.hardlinks import links_of  # noqa: PLC0415 - few commands run outside

            # the record may keep what another folder holds by a link, which this command could write through
            links_of(self._confinement.policy(ctx.workspace)).separate()
        return jail
