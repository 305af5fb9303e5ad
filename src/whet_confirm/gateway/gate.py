"""Decides on a tool call by the rules and the accepted definitions, and asks a person if these require it."""

from __future__ import annotations

from typing import Any

import msgspec

from whet_confirm.client import ConfirmClient
from whet_confirm.gateway.messages import HeldCall
from whet_confirm.gateway.pins import ToolPins
from whet_confirm.gateway.rules import GatewayRules
from whet_confirm.names import GATE_PREFIX
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions, Failed, Unreachable

_MAX_NAME = 100


class GateResult(msgspec.Struct, frozen=True):
    """Whether a call may run, and why not. `ticket_id` is set if a person approved it.

    `accepts_definition` means that the approval also accepted the tool's new definition.
    """

    may_run: bool
    ticket_id: str = ""
    why: str = ""
    accepts_definition: bool = False


class ToolGate:
    """The gate in front of one MCP server."""

    def __init__(
        self, name: str, client: ConfirmClient, rules: GatewayRules, pins: ToolPins, timeout_s: int
    ) -> None:
        self.pins = pins
        self._name = name[:_MAX_NAME]
        self._client = client
        self._rules = rules
        self._timeout_s = timeout_s

    def is_free(self, call: HeldCall) -> bool:
        """Return whether a call passes without a person."""
        effect = self._rules.judge(call.tool, call.arguments)
        return effect == "allow" and self.pins.find_change(call.tool) is None

    async def decide(self, call: HeldCall) -> GateResult:
        """Wait until a call is decided. An approval is consumed, so that the call may run once.

        If the wait is cancelled, so is the request.
        """
        if self._rules.judge(call.tool, call.arguments) == "deny":
            return GateResult(False, why="a rule of the gateway refuses this call")
        change = self.pins.find_change(call.tool)
        details: dict[str, Any] = {"server": self._name, "tool": call.tool, "arguments": call.arguments}
        text = f"An agent calls the tool {call.tool[:_MAX_NAME]} of the MCP server {self._name}."
        if change is not None:
            details |= {"before": change.before, "after": change.after}
            text += " The tool is not as it was accepted: approving accepts its new definition, too."
        ask = ConfirmOptions(requester=f"gateway:{self._name}", timeout_s=self._timeout_s, is_attended=True)
        action = f"{GATE_PREFIX}{self._name}.{call.tool[:_MAX_NAME]}"
        try:
            ticket = await self._client.confirm(action, text, details, ask)
        except ConfirmationRefused as error:
            return GateResult(False, why=error.message)
        if self.pins.find_change(call.tool) != change:
            await self.report(ticket.id, is_failed=True)
            return GateResult(False, why="the tool's definition changed while a person decided")
        if change is not None:
            self.pins.accept(call.tool, change)
        return GateResult(True, ticket.id, accepts_definition=change is not None)

    async def report(self, ticket_id: str, *, is_failed: bool) -> None:
        """Report the result of an approved call."""
        try:
            await self._client.report(ticket_id, "failed" if is_failed else "executed")
        except (Failed, Unreachable):
            return  # it has run: a report that can't be stored must not change its outcome
