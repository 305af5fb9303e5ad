"""Apply the rules for web addresses to a fetch that is no call of the model, such as a request's image."""

from __future__ import annotations

from functools import cached_property

from whet.approval.actions import describe_url
from whet.approval.policy import GatePolicy
from whet.config.permission_settings import ApprovalSettings
from whet.contract.tags import BUILT_IN

_TOOLS = tuple(name for name, tags in BUILT_IN.items() if "url" in tags)


class UrlRules:
    """The rules of one configuration. Only deny and ask rules count, and both refuse: it asks nobody."""

    def __init__(self, settings: ApprovalSettings) -> None:
        self._settings = settings

    @cached_property
    def _policy(self) -> GatePolicy:
        return GatePolicy(self._settings)

    async def refusal(self, url: str, _is_same_host: bool = True) -> str:
        """Return why a rule keeps this address from being fetched, or an empty string."""
        for tool in _TOOLS:
            try:
                ruling = self._policy.judge(describe_url(tool, url), ())
            except ValueError as error:
                return str(error)
            if ruling.verdict != "allow" and ruling.by_rule:
                return ruling.reason
        return ""
