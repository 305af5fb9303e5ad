"""What a review may run to look again: commands that the gate lets pass as reading, in a jail that writes
nothing and reaches nobody. Nothing is run where no sandbox holds."""

from __future__ import annotations

import os
from pathlib import Path

from whet.approval.risk import RiskScope
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.review.probes import Look

_LIMIT_S = 20.0


def looking(home: Home, settings: Settings) -> Look:
    """Make what runs a probe. The sandbox is tried out at the first one."""

    def look(command: str, workspace: str) -> str | None:
        from whet.app.confining import confine  # noqa: PLC0415 - only where a review keeps a fact
        from whet.approval.actions import ActionView  # noqa: PLC0415 - as above
        from whet.approval.policy import GatePolicy  # noqa: PLC0415 - as above
        from whet.approval.shell_risk import analyse  # noqa: PLC0415 - as above
        from whet.tools.declared import TERMINAL  # noqa: PLC0415 - as above
        from whet.tools.shell import command_environment  # noqa: PLC0415 - as above

        root = os.path.realpath(workspace)
        if not os.path.isdir(root):
            return None
        risk = analyse(command, root, RiskScope(root, os.path.expanduser("~"), str(home.root)))
        action = ActionView(TERMINAL, command, command, risk.commands, risk.reasons)
        ruling = GatePolicy(settings.approval).judge(action, ())
        if risk.level != "safe" or risk.network or ruling.verdict != "allow":
            return None
        confinement = confine(home, settings.sandbox)
        try:
            return confinement.look(
                ["bash", "-c", command], command_environment(os.environ), Path(root), _LIMIT_S
            )
        finally:
            confinement.close()

    return look
