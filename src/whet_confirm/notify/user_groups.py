"""Slack's user groups as groups of the policy: `slack:S0123ABC` stands for its members who are people here.

They are fetched every five minutes, and at once when the policy names another group. An answer is valid for
an hour, so people keep their groups during a short outage of Slack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import quote

from whet.channels.loading import read_secret
from whet.contract.channels import SendFailed
from whet.contract.errors import StoreError
from whet.vendors.http import VendorHttp, refused
from whet.vendors.slack_web import BASE_URL, SlackAnswer
from whet_confirm import stand_ins
from whet_confirm.notify.settings import ChannelsText, People
from whet_confirm.service import ConfirmService

PREFIX = "slack:"
_EVERY_S = 300.0
_POLL_S = 2.0
_HOLDS_S = 3600.0
_LOG = logging.getLogger(__name__)


class UserGroups:
    """Keeps the members of the user groups that the policy names. The bot needs the scope usergroups:read."""

    def __init__(
        self, service: ConfirmService, channels: ChannelsText, secrets: Mapping[str, str], people: People
    ) -> None:
        self._service = service
        self._people = people
        self._http: VendorHttp | None = None
        self._bot = ""
        entry = next((channel for channel in channels.channel if channel.kind == "slack"), None)
        if entry is not None:
            self._bot = entry.name or "slack"
            token = read_secret(self._bot, entry.settings.get("token_env", "SLACK_BOT_TOKEN"), secrets)
            headers = {"authorization": f"Bearer {token}"}
            self._http = VendorHttp("Slack", entry.settings.get("base_url") or BASE_URL, headers)

    @property
    def has_client(self) -> bool:
        """Whether there is a channel of kind slack to fetch with."""
        return self._http is not None

    async def run(self) -> None:
        """Fetch until cancelled."""
        loop, next_s = asyncio.get_running_loop(), 0.0
        fetched: set[str] = set()
        try:
            while True:
                groups = self.policy_groups()
                if groups and (groups - fetched or loop.time() >= next_s):
                    fetched, next_s = groups, loop.time() + _EVERY_S
                    for group in sorted(groups):
                        await self._refresh(group)
                await asyncio.sleep(_POLL_S)
        finally:
            if self._http is not None:
                await self._http.aclose()

    def policy_groups(self) -> set[str]:
        """Return the Slack user groups that the policy names."""
        groups = self._service.policy_file.policy.groups.values()
        return {member for people in groups for member in people if member.startswith(PREFIX)}

    async def _refresh(self, group: str) -> None:
        try:
            ids = await self._fetch_members(group.removeprefix(PREFIX))
            names = [name for user_id in ids if (name := self._people.name(self._bot, user_id)) is not None]
            until_s = self._service.timeline.now_s() + _HOLDS_S
            await self._service.change(lambda tx: stand_ins.set_members(tx, group, names, until_s))
        except (SendFailed, StoreError) as error:
            _LOG.warning("the members of %s are not known: %s", group, error)

    async def _fetch_members(self, group: str) -> list[str]:
        if self._http is None:
            raise SendFailed("the channels file has no channel of kind slack", is_final=True)
        answer = await self._http.call("GET", f"/usergroups.users.list?usergroup={quote(group, safe='')}")
        reply = answer.read(SlackAnswer)
        if answer.status != 200 or reply is None or not reply.ok:
            raise refused("Slack", answer, reply.error if reply is not None else "no answer")
        return reply.users
