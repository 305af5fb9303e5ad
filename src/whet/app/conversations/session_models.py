"""Which model answers a session: switched for the process, chosen for one session, restored with it.

A choice is stored with its session, and the sessions that follow in its conversation inherit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.app.model_links.models import SwitchableLink
from whet.store import sessions
from whet.tools.registry import read_specs

if TYPE_CHECKING:
    from whet.agent.session import Session
    from whet.app.services import Services
    from whet.contract.protocols import Provider
    from whet.store.sessions import SessionRow


class SessionModels:
    """The models of the sessions of one process. A switch never changes a session's prefix."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def switch(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer this session and later ones from the next request on,
        and store the choice with this one; "" means the configured model."""
        models = self._services.models
        await models.switch(model)
        await models.release(session.id)
        await self._answer_by(models.provider, session)
        await self.store(session, is_chosen=bool(model))

    async def switch_account(self, session: Session, name: str) -> None:
        """Let another account of the same provider answer this session and later ones from the next request
        on; "" means the account without a name."""
        await self._services.models.switch_account(name)
        await self._answer_by(self._services.models.provider, session)

    async def choose(self, session: Session, model: str) -> None:
        """Let another model of the same provider answer only this session from the next request on, and store
        the choice with it; "" means the model of the other sessions. Durable on return. Raises WhetError."""
        await self._answer_with(session, model)
        await self.store(session, is_chosen=bool(model))

    async def store(self, session: Session, *, is_chosen: bool = True) -> None:
        """Store the model that answers a session now; `is_chosen`: the session keeps it."""
        info = session.model
        await session.log.details.choose_model(info.provider, info.model, chosen=is_chosen)

    async def inherit(self, session: Session, old: SessionRow) -> None:
        """Let the model that was chosen for a conversation answer its next session, too."""
        if old.model_chosen and old.provider == session.model.provider:
            await self.choose(session, old.model)

    async def restore(self, session: Session) -> None:
        """Let the model that was chosen for a stored session answer again, or notify the person that another
        provider's model answers."""
        row, now = session.log.session, session.model
        if not row.model_chosen:
            return
        if row.provider == now.provider:
            await self._answer_with(session, row.model)
            return
        line = (
            f"{now.model} of {now.provider} answers: {row.model}, this session's model, is of {row.provider}"
            f" (--provider {row.provider} --model {row.model})"
        )
        self._services.contexts.host(session.context).runner.add_notice(line, must_show=True)

    async def _answer_with(self, session: Session, model: str) -> None:
        await self._answer_by(await self._services.models.choose(session.id, model), session)

    async def _answer_by(self, provider: Provider, session: Session) -> None:
        """Let the model of `provider` answer a session from the next request on."""
        services = self._services
        prompt, tools_json = await services.database.read(lambda db: sessions.read_prefix(db, session.id))
        link = provider.open(prompt, read_specs(tools_json.encode()), session.id)
        assert isinstance(session.link, SwitchableLink)  # every session that is opened here has one
        session.link.switch(await services.warm_starts.reopen_link(session.id, link))
        await session.context.status()  # inform the engine now, not at the next request
