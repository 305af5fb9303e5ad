"""The routes of the dashboard.

GET changes nothing: each change is a form with the session's CSRF token, sent from our own page. Everything
works without JavaScript; with it, pages update themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from starlette.routing import Route

from whet.app.conversations.slash import SlashCommand
from whet.serve.auth import ApiAuth
from whet.serve.board.activity import ActivityPages
from whet.serve.board.changes import ChangesPages
from whet.serve.board.files import FilePages
from whet.serve.board.filters import FILTERS
from whet.serve.board.frame import Frame
from whet.serve.board.history_pages import HistoryPages
from whet.serve.board.home import HomePages
from whet.serve.board.learning import LearningPages
from whet.serve.board.live import DashboardStream
from whet.serve.board.live_turn import LiveTurns
from whet.serve.board.proof import Proof
from whet.serve.board.session_chat import MAX_UPLOAD_BYTES, SessionChat
from whet.serve.board.session_forms import SessionForms
from whet.serve.board.timing import TimePages
from whet.serve.site import Site
from whet.serve.tokens import LOGINS
from whet.serve.wire import ApiError
from whet.store.database import StateDatabase
from whet.store.schedules import ScheduleAdder
from whet.web.assets import Assets
from whet.web.guard import SiteAddress
from whet.web.login import LoginTexts, SiteLogin
from whet.web.pages import SiteTemplates
from whet.web.sessions import Account, LoginSession, Sessions, TooManyAttempts

_PACKAGE = "whet.serve.board"
_LOGIN_TEXTS = LoginTexts(
    unknown="This token is not known, or was revoked.",
    refused="This token may converse only. The dashboard needs one of role owner.",
)


class Dashboard:
    """The dashboard of a running API."""

    def __init__(
        self,
        site: Site,
        address: SiteAddress,
        port: int,
        commands: Sequence[SlashCommand[Any]] = (),
        add_schedule: ScheduleAdder | None = None,
    ) -> None:
        services = site.services
        assets = Assets(files(_PACKAGE) / "static")
        self.pages: SiteTemplates = SiteTemplates(_PACKAGE, assets, FILTERS)
        sessions = Sessions(
            OwnerAccounts(site.auth), Logins(services.database), services.clock, address, f"whet_{port}"
        )
        self.login: SiteLogin = SiteLogin(sessions, self.pages, _LOGIN_TEXTS)
        frame = Frame(services, site.turns, self.pages, commands)
        live = LiveTurns()
        site.feeds.listeners.append(live.handle_event)
        self._home, self._past = HomePages(frame), HistoryPages(frame, live)
        self._learning, self._proof = LearningPages(frame), Proof(frame)
        self._time = TimePages(frame)
        self._forms, self._changes = SessionForms(frame), ChangesPages(frame)
        self._files, self._activity = FilePages(frame), ActivityPages(frame, add_schedule)
        self._chat = SessionChat(frame, self._past, live, sessions, site.feeds.beat_s)
        self._live = DashboardStream(site.turns, sessions, site.feeds.beat_s)
        self._assets = assets

    def routes(self) -> list[Route]:
        """Return the routes."""
        inside, posted = self.login.require_login, self.login.accept_form
        home, history, learning, proof = self._home, self._past, self._learning, self._proof
        pages = {
            "/": home.home,
            "/costs": home.costs,
            "/confirmations": home.confirmations,
            "/sessions": history.sessions,
            "/sessions/{id}": history.session,
            "/sessions/{id}/time": self._time.session,
            "/sessions/{id}/changes": self._changes.changes,
            "/sessions/{id}/files": self._files.files,
            "/sessions/{id}/images/{seq:int}/{number:int}": self._files.image,
            "/activity": self._activity.show,
            "/learning": learning.ledger,
            "/learning/timeline": learning.timeline,
            "/learning/{id}": learning.change,
            "/inbox": learning.inbox,
            "/notes": learning.notes,
            "/skills": proof.skills,
            "/skills/{name}": proof.skill,
            "/warm": proof.warm,
            "/warm/{name}": proof.template,
            "/reviews": proof.reviews,
        }
        forms = {
            "/sessions/{id}/stop": self._chat.stop,
            "/sessions/{id}/fork": self._chat.fork,
            "/sessions/{id}/rewind": self._chat.rewind,
            "/sessions/{id}/plan": self._chat.plan,
            "/sessions/{id}/rename": self._forms.rename,
            "/sessions/{id}/pin": self._forms.pin,
            "/sessions/{id}/archive": self._forms.archive,
            "/sessions/{id}/set": self._forms.set,
            "/sessions/{id}/restore": self._changes.restore,
            "/activity/goals": self._activity.begin_goal,
            "/activity/schedules": self._activity.add_schedule,
            "/activity/{name}": self._activity.change,
            "/learning/{id}/undo": learning.undo,
            "/learning/{id}/accept": learning.accept,
            "/learning/{id}/reject": learning.reject,
            "/logout": self.login.logout,
        }
        return [
            *(Route(path, inside(page), methods=["GET"]) for path, page in pages.items()),
            *(Route(path, posted(form), methods=["POST"]) for path, form in forms.items()),
            *(
                Route(path, posted(form, MAX_UPLOAD_BYTES), methods=["POST"])
                for path, form in (
                    ("/sessions", home.keep_typed(self._chat.begin)),
                    ("/sessions/{id}/say", self._chat.say),
                    ("/questions/{id}", home.answer),
                )
            ),
            Route("/sessions/{id}/follow", self._chat.follow, methods=["GET"]),
            Route("/login", self.login.login, methods=["GET", "POST"]),
            Route("/live", self._live.serve, methods=["GET"]),
            Route("/static/{name}", self._assets.serve, methods=["GET"]),
        ]


_WAIT_S = 60


class OwnerAccounts:
    """The accounts of the dashboard: owners' tokens. Revoking a token ends its logins at once."""

    def __init__(self, auth: ApiAuth) -> None:
        self._auth = auth

    async def sign_in(self, token: str, client: str) -> Account | None:
        """Return the account of a token, or None if it is unknown. The account has no key if the token is not
        an owner's. Raises TooManyAttempts."""
        caller = self._auth.find_caller(token)
        if caller is None:
            try:
                self._auth.throttle(client)
            except ApiError as error:
                raise TooManyAttempts(_WAIT_S) from error
            return None
        return Account(caller.token_id if caller.is_owner else "", caller.name, frozenset((caller.role,)))

    async def find(self, key: str) -> Account | None:
        """Return the account again, or None if its token was revoked."""
        row = self._auth.find_token(key)
        if row is None or row.role != "owner":
            return None
        return Account(row.id, row.name, frozenset((row.role,)))


class Logins:
    """Stores logins in the database."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    async def save(self, row: LoginSession) -> None:
        """Store a login; durable on return."""
        await self._database.append(lambda db: LOGINS.save(db, row))

    async def find(self, id_hash: str) -> LoginSession | None:
        """Return the login with this hash, or None."""
        return self._database.read_now(lambda db: LOGINS.find(db, id_hash))

    async def drop(self, id_hash: str) -> None:
        """Delete a login; durable on return."""
        await self._database.append(lambda db: LOGINS.drop(db, id_hash))
